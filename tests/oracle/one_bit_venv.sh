#!/usr/bin/env bash
# one_bit_venv.sh: makes (once) an environment with DeepSpeed 0.18.9, the last with all 1-bit optimizers, and prints its python.
# What else it needs is taken from deepspeed_venv.sh's.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
base="$("$root/tests/oracle/deepspeed_venv.sh")"
venv="${DSJ_CACHE:-$HOME/.cache/dsj}/venv-deepspeed-0.18.9"
if [ ! -e "$venv/.complete" ]; then
  printf 'oracle: making %s\n' "$venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  packages() { "$1" -c 'import site; print(site.getsitepackages()[0])'; }
  # Its own packages come first, so that this DeepSpeed is found and not the other one.
  printf 'import site; site.addsitedir("%s")\n' "$(packages "$base")" >"$(packages "$venv/bin/python")/oracle.pth"
  DS_BUILD_OPS=0 "$venv/bin/pip" install -q --no-deps deepspeed==0.18.9 >&2
  "$venv/bin/python" -c 'import deepspeed; assert deepspeed.__version__.startswith("0.18.9"), deepspeed.__version__' >&2
  touch "$venv/.complete"
fi
printf '%s\n' "$venv/bin/python"
