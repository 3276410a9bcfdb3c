#!/usr/bin/env bash
# model_venv.sh: makes (once) the Python environment of the model oracles and prints its python.
# The PyPI wheel of torch is a CUDA build: import needs the libraries it is linked with, but neither triton nor the
# cuda-bindings. Several gigabytes: only `make oracle` and people who change a fixture want it, no test does.
set -euo pipefail
venv="${DSJ_CACHE:-$HOME/.cache/dsj}/venv-oracle-torch"
pure=(
  numpy==2.4.6 transformers==5.23.0 safetensors==0.8.0 tokenizers==0.23.3
  peft==0.21.2 accelerate==1.15.0 psutil==7.2.2
  filelock typing_extensions sympy networkx jinja2 fsspec setuptools
)
binary=(
  torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cublas==13.1.0.3
  nvidia-cudnn-cu13==9.19.0.56 nvidia-cufft==12.0.0.61 nvidia-cufile==1.15.1.6 nvidia-curand==10.4.0.35
  nvidia-cusparse==12.6.3.3 nvidia-cusparselt-cu13==0.8.0 nvidia-nccl-cu13==2.28.9 nvidia-nvjitlink==13.0.88
  nvidia-nvshmem-cu13==3.4.5
)
if [ ! -e "$venv/.complete" ]; then
  printf 'oracle: making %s (about 4 GB)\n' "$venv" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --no-deps "${binary[@]}" >&2
  "$venv/bin/pip" install -q "${pure[@]}" >&2
  "$venv/bin/python" -c 'import torch, transformers'
  touch "$venv/.complete"
fi
printf '%s\n' "$venv/bin/python"
