#!/usr/bin/env bash
# build.sh DIRECTORY JOBS [-DOPTION=VALUE...] [-- TARGET...]: the release build of all targets, or of the given ones.
# Programs are in DIRECTORY/bin, the whole output is in DIRECTORY/build.log. Warnings are errors in CI only, because users
# may have newer compilers. To build few targets, name them instead of setting DSJ_TESTS=OFF: CMake deletes the objects of
# targets that a new configuration omits, and the next full build would compile them again.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${DSJ_CACHE:-$HOME/.cache/dsj}"
export CCACHE_DIR="${CCACHE_DIR:-$cache/ccache}"
directory="$1" jobs="$2" options=() targets=()
shift 2
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
if [ $# -gt 1 ]; then targets=("${@:2}"); fi

mkdir -p "$directory"
log="$directory/configure.log"
if ! cmake -S . -B "$directory" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDSJ_TORCH_ROOT="$cache/libtorch-2.11.0/torch" \
    -DDSJ_CUDA_ROOT="${DSJ_CUDA_ROOT:-$cache/cuda-13.0/nvidia/cu13}" \
    -DDSJ_ARROW_ROOT="$cache/pyarrow-26.0.1/pyarrow" \
    -DDSJ_WERROR="${CI:+ON}" "${options[@]}" >"$log" 2>&1; then
  sed -n '/^CMake Error/,$p' "$log" >&2
  echo "cmake's log: $log" >&2
  exit 1
fi
exec python3 scripts/build_progress.py "$directory/build.log" ninja -C "$directory" -j "$jobs" "${targets[@]}"
