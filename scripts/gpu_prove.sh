#!/usr/bin/env bash
# Tests the GPU path on a machine with a GPU, from the working tree alone: without network, packages or a compiler
# (docs/gpu.md).
#   gpu_prove.sh carry [BUILD]     on the build machine: builds the programs and packs them into .gpu/, which git ignores
#   gpu_prove.sh tests|bench OUT   on the GPU machine: each under ten minutes; a Markdown table and a JSON file in OUT
#   gpu_prove.sh list              lists the steps of each
set -euo pipefail
exec python3 "$(dirname "$0")/gpu_prove.py" "$@"
