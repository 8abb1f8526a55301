#!/bin/sh
# Resharding a 2 GiB checkpoint on disk against copying its bytes: hf-llama -> megatron-llama:tp8.
# Usage: bench/reshard_folder_bench.sh PROGRAM FOLDER [RUNS]   FOLDER needs 7 GB and is removed at the end.
# Both sides in turn, each with its bytes on the disk before the clock stops; prints medians, their ratio and
# the peak of resident memory. Before either, a copy that is not timed is made and removed and the disk is idle:
# the source is in the page cache, and as much memory is at hand as a copy fills. A virtual machine gives free
# memory back to its host, and which side then had to fetch it again would be chance.
set -eu
program=$1 folder=$2 runs=${3:-5}
mkdir "$folder"
trap 'rm -rf "$folder"' EXIT
"$(dirname "$0")/make_checkpoint.py" "$folder/source"
level() {
  rm -rf "$folder/copy" "$folder/target"
  cp --sparse=never --reflink=never "$folder/source/model.safetensors" "$folder/copy"
  sync
  rm "$folder/copy"
  sync
}
i=0
while [ "$i" -lt "$runs" ]; do
  level
  /usr/bin/time -a -o "$folder/copy.times" -f %e sh -c \
    'cp --sparse=never --reflink=never "$1" "$2" && sync "$2"' - "$folder/source/model.safetensors" "$folder/copy"
  level
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
