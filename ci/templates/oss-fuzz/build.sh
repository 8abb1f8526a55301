#!/usr/bin/env bash
# Builds the fuzz targets as OSS-Fuzz and ClusterFuzzLite ask for: compiler, flags and engine come from the environment
# (CC, CXX, CXXFLAGS, LIB_FUZZING_ENGINE); programs, seeds and dictionaries go to $OUT.
set -euo pipefail

# C++ libraries are built with the same standard library as the targets: the distribution's have another one.
source_dir=${SRC:?}/shardcheck
build=${WORK:?}/build
cmake -S "$source_dir" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DSHARDCHECK_ASSERTS=ON \
  -DCMAKE_DISABLE_FIND_PACKAGE_fmt=ON -DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON \
  -DSHARDCHECK_FUZZING_ENGINE="${LIB_FUZZING_ENGINE:?}" -DCMAKE_C_COMPILER="${CC:?}" -DCMAKE_CXX_COMPILER="${CXX:?}" \
  -DCMAKE_CXX_FLAGS="${CXXFLAGS:-}"
cmake --build "$build" --target fuzz_replay fuzz_targets

replay=$build/fuzz/fuzz_replay
"$replay" --list | cut -f1 | while IFS= read -r target; do
  [[ "$target" == canary ]] && continue # it fails on purpose
  cp "$build/fuzz/fuzz_$target" "${OUT:?}/"
  seeds=$(mktemp -d)
  "$replay" --target="$target" --expand="$seeds" "$source_dir/corpus/seeds/$target"
  python3 -m zipfile -c "$OUT/fuzz_${target}_seed_corpus.zip" "$seeds"/*
  "$replay" --target="$target" --dictionary >"$OUT/fuzz_$target.dict"
done
