#!/usr/bin/env bash
# Compiles (syntax only) the CUDA sources of the engine on a machine without GPU, driver or toolkit: keeps them from
# rotting. Only headers are fetched, from pinned wheels, and cached under ${DSJ_CACHE:-~/.cache/dsj}/cuda-headers.
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${DSJ_CACHE:-$HOME/.cache/dsj}"
torch="${DSJ_TORCH_ROOT:-$cache/libtorch-2.11.0/torch}"
headers="$cache/cuda-headers"
# name version: what CUDA 13.0 and the NCCL of torch 2.11 split their headers into
wheels=("nvidia-cuda-runtime 13.0.96" "nvidia-cuda-crt 13.0.88" "nvidia-cuda-cccl 13.0.85" "nvidia-nccl-cu13 2.28.9")

for row in "${wheels[@]}"; do
  read -r name version <<<"$row"
  [ -e "$headers/$name-$version.complete" ] && continue
  echo "check_cuda_compiles: fetching the headers of $name $version" >&2
  staging="$(mktemp -d)"
  trap 'rm -rf "$staging"' EXIT
  python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_28_x86_64 \
    --platform manylinux_2_18_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 \
    -d "$staging" "$name==$version"
  mkdir -p "$headers"
  unzip -q -o "$staging"/*.whl '*/include/*' -d "$headers"
  touch "$headers/$name-$version.complete"
  rm -rf "$staging"
done

includes=(-I . -isystem "$headers/nvidia/cu13/include" -isystem "$headers/nvidia/nccl/include")
failed=0
while IFS= read -r source; do
  if "${CXX:-g++}" -std=c++23 -fsyntax-only -Wall -Wextra -Werror -Wno-missing-field-initializers -DDSJ_CUDA -DUSE_CUDA \
    -DUSE_DISTRIBUTED -DUSE_C10D_GLOO "${includes[@]}" -isystem "$torch/include" \
    -isystem "$torch/include/torch/csrc/api/include" "$source"; then
    echo "check_cuda_compiles: $source compiles"
  else
    failed=1
  fi
done < <(printf '%s\n' engine/comm/nccl*.cc engine/comm/factory.cc)
exit $failed
