#!/usr/bin/env bash
# gguf_venv.sh: makes (once) the Python environment of the GGUF oracle, on top of the model oracles' one, and prints its
# python: a built llama.cpp (xllamacpp), and llama.cpp's converter with its gguf-py, from a source package that has it.
set -euo pipefail
base="$(cd "$(dirname "$0")" && ./model_venv.sh)"
venv="${DSJ_CACHE:-$HOME/.cache/dsj}/venv-oracle-gguf"
if [ ! -e "$venv/.complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$("$venv/bin/python" -c \
    'import sysconfig; print(sysconfig.get_path("purelib"))')/model.pth"
  "$venv/bin/pip" install -q --no-deps xllamacpp==2026.10.11549 gguf==0.19.0 sentencepiece==0.2.3 requests pyyaml >&2
  "$venv/bin/pip" download -q --no-deps --no-binary :all: --no-build-isolation -d "$venv" llama_cpp_python==0.3.36 >&2
  mkdir "$venv/llama.cpp"
  tar xzf "$venv"/llama_cpp_python-*.tar.gz -C "$venv/llama.cpp" --strip-components 3 --wildcards \
    '*/vendor/llama.cpp/conversion/*' '*/vendor/llama.cpp/gguf-py/*' '*/vendor/llama.cpp/convert_hf_to_gguf.py'
  rm "$venv"/llama_cpp_python-*.tar.gz
  "$venv/bin/python" -c 'import xllamacpp, gguf, torch, transformers'
  touch "$venv/.complete"
fi
printf '%s\n' "$venv/bin/python"
