#!/usr/bin/env python3
"""LoRA on a base in 4 bits as PEFT does it over bitsandbytes' Linear4bit, in fp32 on a CPU: cases of tests/fixtures/lora/ in
the form of peft_oracle.py's, with `base_in_4_bits`. transformers quantises every linear layer but lm_head, and so does this.
`loss_16` has the losses on the base as it is. Scales of the second level are the nearest ones (four_bit_oracle.py). With
names it makes only those.
"""
# python: tests/oracle/bitsandbytes_venv.sh
import json
import os
import shutil
import sys

import bitsandbytes
import peft
import torch
import transformers
from bitsandbytes import functional
from peft import LoraConfig, get_peft_model

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import four_bit_oracle
import peft_oracle

STEPS = 20
CASES = {  # base, two levels, settings
    "four-bits": ("eight-bit/model", True, {"r": 4, "lora_alpha": 8, "target_modules": "all-linear"}),
    "four-bits-qv": ("tiny-llama", False, {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}),
    "four-bits-bias": ("tiny-qwen2", True, {"r": 3, "lora_alpha": 6, "target_modules": ["k_proj", "down_proj"]}),
}


def quantised(model, two_levels):
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear or name == "lm_head":
            continue
        linear = bitsandbytes.nn.Linear4bit(module.in_features, module.out_features, module.bias is not None, torch.float32,
                                            compress_statistics=two_levels, quant_type="nf4")
        linear.weight = bitsandbytes.nn.Params4bit(module.weight.data, requires_grad=False, compress_statistics=two_levels,
                                                   quant_type="nf4", module=linear)
        if module.bias is not None:
            linear.bias = module.bias
        model.set_submodule(name, linear.to("cpu"))
        assert linear.weight.dtype == torch.uint8
    model.is_loaded_in_4bit = True  # PEFT goes by it
    return model


def run(name, base, two_levels, settings):
    directory = os.path.join(peft_oracle.ROOT, name)
    shutil.rmtree(directory, ignore_errors=True)

    def start(model):
        torch.manual_seed(11)
        return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **settings)).train()

    rows = peft_oracle.rows_of(base, peft_oracle.load(base).config.vocab_size)
    plain, _, _ = peft_oracle.train(start(peft_oracle.load(base)), rows, STEPS, peft_oracle.ADAMW)
    model = start(quantised(peft_oracle.load(base), two_levels))
    assert any(isinstance(module, peft.tuners.lora.bnb.Linear4bit) for module in model.modules())
    peft_oracle.save(model, os.path.join(directory, "initial"))
    losses, norms, trained = peft_oracle.train(model, rows, STEPS, peft_oracle.ADAMW)
    peft_oracle.save(model, os.path.join(directory, "final"))
    with open(os.path.join(directory, "run.json"), "w", encoding="utf-8") as file:
        json.dump({"versions": {"peft": peft.__version__, "torch": torch.__version__, "transformers": transformers.__version__,
                                "bitsandbytes": bitsandbytes.__version__},
                   "base": base, "base_in_4_bits": {"two_levels": two_levels}, "settings": settings, "rows": rows,
                   "adamw": peft_oracle.ADAMW, "loss": losses, "grad_norm": norms, "loss_16": plain, "trainable": trained}, file)
        file.write("\n")
    apart = max(abs(one / other - 1) for one, other in zip(losses, plain))
    print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}, {apart:.2e} from a base in 16 bits")


def main():
    torch.set_num_threads(1)
    functional.quantize_blockwise = four_bit_oracle.nearest
    for name, case in CASES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            run(name, *case)


if __name__ == "__main__":
    main()
