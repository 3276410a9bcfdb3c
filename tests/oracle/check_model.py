#!/usr/bin/env python3
"""Says what transformers reads from an exported Hugging Face directory. Exit 1 when it does not load or differs.

Usage: check_model.py DIRECTORY [--oracle FIXTURE.oracle.json [--tolerance 1e-4]] [--same-as DIRECTORY2]
--oracle: logits on the fixture's ids must agree. --same-as: every tensor must be equal bit by bit.
Run it with the python that tests/oracle/model_venv.sh prints.
"""
import argparse
import hashlib
import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText


def load(directory):
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        vision = "vision_config" in json.load(file)
    auto = AutoModelForImageTextToText if vision else AutoModelForCausalLM
    model, info = auto.from_pretrained(
        directory, attn_implementation="eager", output_loading_info=True, local_files_only=True)
    bad = {key: sorted(value) for key, value in info.items() if value and key != "error_msgs"}
    if bad or info.get("error_msgs"):
        sys.exit(f"{directory}: transformers says {bad} {info.get('error_msgs')}")
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--oracle")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--same-as")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(options.directory)
    state = model.state_dict()
    print(f"{options.directory}: {type(model).__name__}, {next(iter(state.values())).dtype}, "
          f"{sum(p.numel() for p in model.parameters())} parameters, tied {model.config.tie_word_embeddings}")
    ids = torch.arange(32).remainder(model.config.get_text_config().vocab_size).reshape(2, 16)
    fixture = json.load(open(options.oracle, encoding="utf-8")) if options.oracle else None
    if fixture:
        ids = torch.tensor(fixture["input_ids"])
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits.float()
    print("logits sha256", hashlib.sha256(logits.numpy().tobytes()).hexdigest())
    failed = False
    if fixture:
        expected = torch.tensor(fixture["logits"]).reshape(fixture["logits_shape"])
        difference = (logits[:, fixture["logits_positions"]] - expected).abs().max().item()
        failed |= difference > options.tolerance
        print(f"logits: largest difference {difference:.3g}, tolerance {options.tolerance:.3g}")
    if options.same_as:
        other = load(options.same_as).state_dict()
        different = sorted(name for name in state.keys() | other.keys()
                           if name not in state or name not in other or not torch.equal(state[name], other[name]))
        failed |= bool(different)
        print(f"tensors: {len(state)} read, {len(different)} differ {different[:5]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
