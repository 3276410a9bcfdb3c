#!/usr/bin/env bash
# deepspeed_venv.sh: makes (once) the environment of deepspeed_run.py, on top of the model oracles' one, and prints its python.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
base="$("$root/tests/oracle/model_venv.sh")"
venv="${DSJ_CACHE:-$HOME/.cache/dsj}/venv-deepspeed"
if [ ! -e "$venv/.complete" ]; then
  printf 'oracle: making %s\n' "$venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$base" -c 'import site; print(site.getsitepackages()[0])' >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/oracle.pth"
  DS_BUILD_OPS=0 "$venv/bin/pip" install -q --no-deps deepspeed==0.19.8 einops hjson msgpack ninja psutil py-cpuinfo pydantic tqdm >&2
  "$venv/bin/python" -c 'import deepspeed' >&2
  touch "$venv/.complete"
fi
printf '%s\n' "$venv/bin/python"
