#!/usr/bin/env bash
# Proves the GPU path on a machine that has one, from the working tree alone: no network, no packages, no compiler but
# nvcc's companions (docs/gpu.md says how).
#   gpu_prove.sh carry [BUILD]     here: builds what is needed and packs it into .gpu/, which git ignores
#   gpu_prove.sh tests|bench OUT   there: one call each, below ten minutes; a Markdown table and a JSON file in OUT
#   gpu_prove.sh list              says what each would run
set -euo pipefail
exec python3 "$(dirname "$0")/gpu_prove.py" "$@"
