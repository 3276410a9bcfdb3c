#!/usr/bin/env bash
# jax_venv.sh: makes (once) the environment of jax_loop.py and prints its python.
set -euo pipefail
version=0.9.2
venv="${DSJ_CACHE:-$HOME/.cache/dsj}/venv-jax-$version"
if [ ! -e "$venv/.complete" ]; then
  printf 'bench: making %s\n' "$venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q "jax==$version" safetensors numpy >&2
  touch "$venv/.complete"
fi
printf '%s\n' "$venv/bin/python"
