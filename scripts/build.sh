#!/usr/bin/env bash
# build.sh DIRECTORY JOBS: the release build; leaves DIRECTORY/bin/dsj, dsj-agent, dsj-train.
# Under CI warnings are errors; for users a newer compiler's warnings are not.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${DSJ_CACHE:-$HOME/.cache/dsj}"
export CCACHE_DIR="${CCACHE_DIR:-$cache/ccache}"
cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DDSJ_TORCH_ROOT="$cache/libtorch-2.11.0/torch" -DDSJ_WERROR="${CI:+ON}" >"$1.configure.log" 2>&1 || { cat "$1.configure.log"; exit 1; }
mkdir -p "$1"; mv "$1.configure.log" "$1/configure.log"
cmake --build "$1" -j "$2"
