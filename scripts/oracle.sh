#!/usr/bin/env bash
# oracle.sh [NAME...]: rebuilds the committed fixtures with the reference libraries. Runs tests/oracle/NAME_oracle.py,
# or all of them without a NAME, in one venv. Tests never need it.
# A script lists its PyPI packages in a line "# requires: package==version ...", or names a command in a line
# "# python: COMMAND" that creates another environment and prints its python.
# Finally, or with the NAME check_universal, Python DeepSpeed resumes from checkpoints that build/bin/dsj exports.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${DSJ_CACHE:-$HOME/.cache/dsj}/venv-oracle"
scripts=()
check=false
if [ $# -eq 0 ]; then
  scripts=(tests/oracle/*_oracle.py)
  check=true
fi
for name in "$@"; do
  if [ "$name" = check_universal ]; then check=true; else scripts+=("tests/oracle/${name}_oracle.py"); fi
done
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
if $check; then
  golden="${DSJ_SHARED_DIR:-../shared}/golden"
  if [ -x build/bin/dsj ] && [ -d "$golden" ]; then
    "$(tests/oracle/deepspeed_venv.sh)" tests/oracle/check_universal.py "$golden"
  else
    echo "oracle: skipped: check_universal.py needs build/bin/dsj and $golden" >&2
  fi
fi
