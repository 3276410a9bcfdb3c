#!/usr/bin/env bash
# trl_venv.sh: makes (once) the Python environment of the TRL oracle, on top of the model oracles' one, and prints its
# python.
set -euo pipefail
base="$(cd "$(dirname "$0")" && ./model_venv.sh)"
venv="${DSJ_CACHE:-$HOME/.cache/dsj}/venv-oracle-trl"
if [ ! -e "$venv/.complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$venv/bin/python" -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))')/model.pth"
  "$venv/bin/pip" install -q --no-deps trl==1.16.0 datasets==5.2.0 pyarrow==26.0.1 pandas==3.1.1 xxhash==4.1.0 \
    multiprocess==0.70.19 dill==0.4.1 python-dateutil six pytz requests aiohttp >&2
  "$venv/bin/python" -c 'import trl'
  touch "$venv/.complete"
fi
printf '%s\n' "$venv/bin/python"
