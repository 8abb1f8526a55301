# Sourced by the scripts of this folder: named steps whose time is printed at the end.
step_names=()
step_seconds=()

# step NAME COMMAND...: runs the command without stdin and keeps its wall time.
step() {
  local name=$1 begin=$EPOCHREALTIME status=0
  shift
  printf '\n== %s\n' "$name" >&2
  "$@" </dev/null || status=$?
  local end=$EPOCHREALTIME
  step_names+=("$name")
  step_seconds+=("$(awk -v a="$begin" -v b="$end" 'BEGIN { printf "%.1f", b - a }')")
  return "$status"
}

# step_summary: where the time went, one line.
step_summary() {
  local i line=""
  for i in "${!step_names[@]}"; do
    line+="${line:+, }${step_names[i]} ${step_seconds[i]} s"
  done
  printf '\ntime: %s\n' "$line" >&2
}

# quietly LOG COMMAND...: output goes to the file; its end is shown when the command fails.
quietly() {
  local log=$1 status=0
  shift
  "$@" >"$log" 2>&1 || status=$?
  if ((status != 0)); then
    tail -n 80 "$log" >&2
  fi
  return "$status"
}
