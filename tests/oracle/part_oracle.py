#!/usr/bin/env python3
"""Runs that train a part of a model, in fp32, by torch's requires_grad: tests/fixtures/part.oracle.json.

Per case the losses and gradient norms of AdamW steps, as peft_oracle.py makes them, and the names that stay frozen.
`parameters`: Python's re.match over named_parameters(); `layers`: LLaMA-Factory's freeze_trainable_layers.
"""
# python: tests/oracle/model_venv.sh
import json
import os
import re

import torch
import transformers

import peft_oracle

OUT = os.path.join(peft_oracle.FIXTURES, "part.oracle.json")
STEPS = 20
# A larger eps: Adam makes full steps of gradients that are rounding alone.
ADAMW = {**peft_oracle.ADAMW, "eps": 1e-3}
CASES = {
    "last-layer": ("tiny-qwen2", None, 1),
    "first-layer-and-head": ("tiny-qwen2", r".*\.\d+\.|lm_head", -1),
    "mlp-of-the-last": ("tiny-qwen2", r".*\.\d+\.mlp", 1),
    "names": ("tiny-qwen2-tied", r"model\.embed_tokens\.weight$|model\.layers\.0\.input_layernorm|model\.layers\.1\.mlp\.down", None),
    "all-but": ("tiny-qwen2", r"(?!model\.embed_tokens|.*(?:norm))", None),
    "experts": ("tiny-mixtral", r"model\.layers\.1\.", None),
}


def is_trained(name, config, parameters, layers):
    number = re.search(r"\.(\d+)\.", name)
    if number and layers is not None:
        count, at = config.num_hidden_layers, int(number.group(1))
        if not (at >= count - layers if layers > 0 else at < -layers):
            return False
    return bool(re.match(parameters, name)) if parameters else number is not None


def run(base, parameters, layers):
    model = peft_oracle.load(base).train()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_trained(name, model.config, parameters, layers))
    rows = peft_oracle.rows_of(base, model.config.vocab_size)
    losses, norms, trained = peft_oracle.train(model, rows, STEPS, ADAMW)
    return {"base": base, "parameters": parameters, "layers": layers, "rows": rows, "adamw": ADAMW, "loss": losses,
            "grad_norm": norms, "trainable": trained}


def main():
    torch.set_num_threads(1)
    cases = {name: run(*case) for name, case in CASES.items()}
    with open(OUT, "w", encoding="utf-8") as file:
        json.dump({"versions": {"torch": torch.__version__, "transformers": transformers.__version__}, "cases": cases}, file)
        file.write("\n")
    for name, case in cases.items():
        print(f"{name}: loss {case['loss'][0]:.6f} to {case['loss'][-1]:.6f}, {case['trainable']} parameters")


if __name__ == "__main__":
    main()
