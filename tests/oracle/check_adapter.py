#!/usr/bin/env python3
"""Loads an exported adapter with PEFT: every tensor of the file must be taken, and none be missing.

Usage: $(tests/oracle/model_venv.sh) tests/oracle/check_adapter.py BASE ADAPTER [--merged DIRECTORY]. With --merged also
compares the logits with those of the merged model. Exit 1 when something differs.
"""
import argparse
import sys

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def load(directory):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("base")
    parser.add_argument("adapter")
    parser.add_argument("--merged")
    arguments = parser.parse_args()
    model = PeftModel.from_pretrained(load(arguments.base), arguments.adapter).eval()
    file = load_file(arguments.adapter + "/adapter_model.safetensors")
    taken = get_peft_model_state_dict(model)
    wrong = [name for name in file.keys() | taken.keys()
             if name not in file or name not in taken or not torch.equal(file[name].float(), taken[name].float())]
    print(f"{len(file)} tensors in the file, {len(wrong)} not as PEFT has them")
    difference = 0.0
    if arguments.merged:
        ids = torch.randint(0, model.config.vocab_size, (2, 24), generator=torch.Generator().manual_seed(5))
        with torch.no_grad():
            ours, theirs = load(arguments.merged)(input_ids=ids).logits, model(input_ids=ids).logits
        difference = (ours - theirs).abs().max().item()
        print(f"largest logits difference to the merged model: {difference:.3g} of {theirs.abs().max().item():.3g}")
    return 1 if wrong or difference > 1e-4 else 0


if __name__ == "__main__":
    sys.exit(main())
