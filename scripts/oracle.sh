#!/usr/bin/env bash
# oracle.sh [NAME...]: rebuilds the committed fixtures with the libraries we are compared with. Each
# tests/oracle/NAME_oracle.py runs in one venv; without a NAME all of them. Tests never need it.
# A script names what it needs from PyPI in a line "# requires: package==version ...", or, in a line
# "# python: COMMAND", what makes another environment and prints its python.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${DSJ_CACHE:-$HOME/.cache/dsj}/venv-oracle"
scripts=()
if [ $# -eq 0 ]; then
  scripts=(tests/oracle/*_oracle.py)
else
  for name in "$@"; do scripts+=("tests/oracle/${name}_oracle.py"); done
fi
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
for script in "${scripts[@]}"; do
  read -r -a packages <<<"$(sed -n 's/^# requires: //p' "$script" | tr '\n' ' ')"
  if [ ${#packages[@]} -gt 0 ]; then "$venv/bin/python" -m pip install -q "${packages[@]}"; fi
  echo "oracle: $script" >&2
  python="$venv/bin/python"
  maker="$(sed -n 's/^# python: //p' "$script")"
  if [ -n "$maker" ]; then python="$("$maker")"; fi
  "$python" "$script"
done
