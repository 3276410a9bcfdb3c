#!/usr/bin/env bash
# build.sh DIRECTORY JOBS [-DOPTION=VALUE...] [-- TARGET...]: the release build; leaves DIRECTORY/bin/dsj, dsj-agent,
# dsj-train. Under CI warnings are errors; for users a newer compiler's warnings are not.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${DSJ_CACHE:-$HOME/.cache/dsj}"
export CCACHE_DIR="${CCACHE_DIR:-$cache/ccache}"
directory="$1" jobs="$2" options=() targets=()
shift 2
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
if [ $# -gt 1 ]; then targets=(--target "${@:2}"); fi
cmake -S . -B "$directory" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDSJ_TORCH_ROOT="$cache/libtorch-2.11.0/torch" \
  -DDSJ_WERROR="${CI:+ON}" "${options[@]}" >"$directory.configure.log" 2>&1 || { cat "$directory.configure.log"; exit 1; }
mkdir -p "$directory"; mv "$directory.configure.log" "$directory/configure.log"
cmake --build "$directory" -j "$jobs" "${targets[@]}"
