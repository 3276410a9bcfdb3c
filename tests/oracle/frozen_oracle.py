#!/usr/bin/env python3
"""Makes tests/fixtures/ds-frozen: checkpoints of Python DeepSpeed 0.19.8 in which some parameters are frozen.

model/: a Qwen2 of 6,000 parameters. z2/, z3/: what save_checkpoint wrote after three steps of two ranks at that stage,
without the scripts that DeepSpeed copies beside. record.json: `ds_config` by stage, `rows`, `frozen` (names),
`losses` by stage, of six steps: three before the checkpoint and three after it, in the same process.
Sample of step s, rank r, row j: ((s * 2 + r) * 2 + j) mod rows.
"""
# python: tests/oracle/deepspeed_venv.sh
import json
import os
import shutil
import sys

import deepspeed_ranks

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(os.path.dirname(HERE), "fixtures", "ds-frozen")
STAGES, WORLD, MICRO, STEPS, SAVED = (2, 3), 2, 2, 6, 3
FROZEN = ("model.embed_tokens", "model.layers.0.mlp")


def ds_config(stage):
    return {"train_micro_batch_size_per_gpu": MICRO, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": stage, **({"stage3_param_persistence_threshold": 0} if stage == 3 else {})},
            "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                                                      "torch_adam": True}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 5e-4, "warmup_max_lr": 2e-3, "warmup_num_steps": 8,
                                                         "warmup_type": "linear"}}}


def train(stage, rows):
    """The losses of six steps; a checkpoint lies between."""
    import torch
    import deepspeed
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(os.path.join(OUT, "model"), dtype=torch.float32, attn_implementation="eager")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(FROZEN))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=trained, config=ds_config(stage))
    losses = []
    for step in range(STEPS):
        if step == SAVED:
            engine.save_checkpoint(os.path.join(OUT, f"z{stage}"))
        losses.append(deepspeed_ranks.backward(engine, rows, step))
        engine.step()
    return losses


def worker():
    """One rank; rank 0 prints the losses."""
    deepspeed_ranks.begin()
    with open(os.path.join(OUT, "record.json"), encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    deepspeed_ranks.result({stage: train(stage, rows) for stage in STAGES})


def write(record):
    with open(os.path.join(OUT, "record.json"), "w", encoding="utf-8") as out:
        json.dump(record, out, separators=(",", ":"))
        out.write("\n")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    record = {"deepspeed": "0.19.8", "frozen": list(FROZEN), "ds_config": {stage: ds_config(stage) for stage in STAGES},
              "rows": deepspeed_ranks.make_model(os.path.join(OUT, "model"), vocabulary=64, hidden=16, inner=24)}
    write(record)
    write({**record, "losses": deepspeed_ranks.run(__file__, WORLD)})
    for stage in STAGES:
        deepspeed_ranks.remove_scripts(os.path.join(OUT, f"z{stage}"))


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
