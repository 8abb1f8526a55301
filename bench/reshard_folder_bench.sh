#!/bin/sh
# Resharding a 2 GiB checkpoint on disk against copying its bytes: hf-llama -> megatron-llama:tp8.
# Usage: bench/reshard_folder_bench.sh PROGRAM FOLDER [RUNS]   FOLDER needs 7 GB and is removed at the end.
# Both sides in turn, each with its bytes on the disk before the clock stops; prints medians, their ratio and
# the peak of resident memory.
set -eu
program=$1 folder=$2 runs=${3:-5}
mkdir "$folder"
trap 'rm -rf "$folder"' EXIT
"$(dirname "$0")/make_checkpoint.py" "$folder/source"
cat "$folder/source/model.safetensors" >/dev/null
i=0
while [ "$i" -lt "$runs" ]; do
  rm -rf "$folder/copy" "$folder/target"
  sync
  /usr/bin/time -a -o "$folder/copy.times" -f %e sh -c \
    'cp --sparse=never --reflink=never "$1" "$2" && sync "$2"' - "$folder/source/model.safetensors" "$folder/copy"
  rm -f "$folder/copy"
  sync
  /usr/bin/time -a -o "$folder/reshard.times" -f '%e %M' \
    "$program" reshard "$folder/source" "$folder/target" --to=megatron-llama:tp8 --quiet >/dev/null
  i=$((i + 1))
done
[ "$("$program" digest --quiet "$folder/source")" = "$("$program" digest --quiet "$folder/target")" ]
sort -n "$folder/copy.times" >"$folder/copy.sorted"
sort -n "$folder/reshard.times" >"$folder/reshard.sorted"
middle=$(((runs + 1) / 2))
copy=$(sed -n "${middle}p" "$folder/copy.sorted")
reshard=$(sed -n "${middle}p" "$folder/reshard.sorted" | cut -d' ' -f1)
peak=$(cut -d' ' -f2 "$folder/reshard.times" | sort -n | tail -1)
echo "copy     $copy s    of $(tr '\n' ' ' <"$folder/copy.sorted")"
echo "reshard  $reshard s    of $(cut -d' ' -f1 "$folder/reshard.sorted" | tr '\n' ' ')"
awk -v c="$copy" -v r="$reshard" -v m="$peak" \
  'BEGIN { printf "throughput of reshard / copy  %.2f\npeak resident memory  %.1f MiB\n", c / r, m / 1024 }'
