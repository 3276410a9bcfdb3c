#!/usr/bin/env python3
"""Makes tests/fixtures/linear_layers.json: per family's fixture the modules that transformers puts in 4 bits where it loads
a model with BitsAndBytesConfig(load_in_4bit=True), sorted. Of a model with a vision part those of its text part."""
# python: tests/oracle/bitsandbytes_venv.sh
import os
import sys

import bitsandbytes
import transformers
from transformers.integrations.bitsandbytes import replace_with_bnb_linear
from transformers.quantizers.base import get_keys_to_not_convert

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import qwen2_oracle

FIXTURES = os.path.join(os.path.dirname(HERE), "fixtures")


def replaced(directory):
    model = qwen2_oracle.load(directory)
    settings = transformers.BitsAndBytesConfig(load_in_4bit=True)
    base = getattr(model, "model", None)
    text = getattr(base, "language_model", getattr(base, "text_model", None))
    inside = {id(module) for module in (text if text is not None else model).modules()}
    names = {name for name, module in model.named_modules() if id(module) in inside}
    model = replace_with_bnb_linear(model, get_keys_to_not_convert(model), settings)
    return sorted(name for name, module in model.named_modules()
                  if isinstance(module, bitsandbytes.nn.Linear4bit) and name in names)


def main():
    record = {"transformers": transformers.__version__, "modules": {}}
    for name in sorted(os.listdir(FIXTURES)):
        if name.startswith("tiny-") and os.path.exists(os.path.join(FIXTURES, name, "config.json")):
            record["modules"][name] = replaced(os.path.join(FIXTURES, name))
    qwen2_oracle.write_json(os.path.join(FIXTURES, "linear_layers.json"), record)
    print(f"linear layers: {len(record['modules'])} families")


if __name__ == "__main__":
    main()
