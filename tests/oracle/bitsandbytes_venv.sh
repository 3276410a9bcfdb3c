#!/usr/bin/env bash
# bitsandbytes_venv.sh: makes (once) an environment with bitsandbytes, on top of the model oracles' one, and prints its
# python.
set -euo pipefail
base="$(cd "$(dirname "$0")" && ./model_venv.sh)"
venv="${DSJ_CACHE:-$HOME/.cache/dsj}/venv-oracle-bitsandbytes"
if [ ! -e "$venv/.complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$venv/bin/python" -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))')/model.pth"
  "$venv/bin/pip" install -q --no-deps bitsandbytes==0.50.2 >&2
  "$venv/bin/python" -c 'import bitsandbytes'
  touch "$venv/.complete"
fi
printf '%s\n' "$venv/bin/python"
