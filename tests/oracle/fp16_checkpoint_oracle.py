#!/usr/bin/env python3
"""Makes tests/fixtures/ds-fp16: checkpoints of Python DeepSpeed 0.19.8 in fp16 with a dynamic loss scale.

Two ranks train a Qwen2 of 1,500 parameters (model/). The scale begins so high that the first steps are skipped, and grows
back into overflows.
zSTAGE/: what save_checkpoint wrote before each of the steps `saved`, without the scripts that DeepSpeed copies beside. At the
first all steps were skipped; at the second the hysteresis is used up. DeepSpeed's stage 0 has none, and sums gradients before
it divides them, so that other steps overflow: its ds_config has a hysteresis of 1 and prescale_gradients.
record.json: `ds_config` by stage, `rows`, `saved`, `steps` by stage (`loss`, `loss_scale` as used in it, `skipped`, `lr`); a
fresh DeepSpeed that loads a checkpoint repeats them bit for bit. `scaler` by stage and where it was saved: what DeepSpeed's own
scaler held. `spread` by stage: the largest relative distance of a loss from the same run with each weight moved to a
neighbouring fp32, which skips the same steps.
Attention is transformers' default, sdpa. Its eager one writes the gradient of the probabilities in fp16: that overflows in steps
in which no parameter's gradient does, which then are skipped.
Two things of DeepSpeed are patched. is_fp16_supported says yes, as on a GPU. At stage 0 the loss is scaled: DeepSpeed 0.19.8
forgets it (engine.backward asks only ZeRO's optimizers) and divides the gradients all the same.
"""
# python: tests/oracle/deepspeed_venv.sh
import json
import os
import shutil
import sys

import deepspeed_ranks

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "ds-fp16")
STAGES, WORLD, STEPS, SAVED, DRAWS = (0, 1, 2, 3), 2, 20, (2, 10), 3


def ds_config(stage):
    return {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
            "fp16": {"enabled": True, "initial_scale_power": 20, "loss_scale_window": 3, "hysteresis": 2 if stage else 1,
                     "min_loss_scale": 1},
            **({} if stage else {"prescale_gradients": True}),
            "zero_optimization": {"stage": stage, **({"stage3_param_persistence_threshold": 0} if stage == 3 else {})},
            "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                                                      "torch_adam": True}},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 5e-4, "warmup_max_lr": 2e-3, "warmup_num_steps": 8,
                                                         "warmup_type": "linear"}}}


def make_model(draw):
    """Each weight at the next fp32, up or down by the seed."""
    import torch
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(os.path.join(OUT, "model"), dtype=torch.float32, attn_implementation="sdpa")
    generator = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for parameter in model.parameters() if draw else []:
            up = torch.randint(0, 2, parameter.shape, generator=generator).mul_(2).sub_(1)
            parameter.mul_(1 + up * 2.0 ** -24 * 1.5)
    return model


def scaler_of(optimizer):
    """What decides the scales to come; at stage 0 every overflow halves the scale."""
    scaler = getattr(optimizer, "loss_scaler", None) or optimizer.loss_scale_config
    return {"scale": float(scaler.cur_scale), "hysteresis": getattr(scaler, "cur_hysteresis", 1),
            "step": scaler.cur_iter, "last_overflow": scaler.last_overflow_iter}


def train(rows, stage, first=0, draw=0, saves=False):
    """Steps from `first` on; with `first` they go on from the checkpoint that was saved before it."""
    import deepspeed
    model = make_model(draw)
    engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=ds_config(stage))
    folder = os.path.join(OUT, f"z{stage}")
    if first:
        path, _ = engine.load_checkpoint(folder, tag=f"global_step{first}")
        if path is None or engine.global_steps != first:
            raise RuntimeError(f"nothing was loaded: {path}, step {engine.global_steps}")
    engine.train()
    steps, scalers = [], {}
    for step in range(first, STEPS):
        if saves and step in SAVED:
            engine.save_checkpoint(folder)
            scalers[step] = scaler_of(optimizer)
        scale, skipped, lr = float(optimizer.loss_scale), engine.skipped_steps, engine.get_lr()[0]
        loss = deepspeed_ranks.backward(engine, rows, step, 1.0 if stage else scale)
        engine.step()
        steps.append({"loss": loss, "loss_scale": scale, "skipped": engine.skipped_steps - skipped, "lr": lr})
    return steps, scalers


def worker(part):
    """One rank of one part; rank 0 prints it."""
    from deepspeed.accelerator import get_accelerator
    type(get_accelerator()).is_fp16_supported = lambda self: True
    deepspeed_ranks.begin()
    with open(os.path.join(OUT, "record.json"), encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    parts = {"save": lambda stage: train(rows, stage, saves=True),
             "resume": lambda stage: {first: train(rows, stage, first)[0] for first in SAVED},
             "move": lambda stage: [train(rows, stage, draw=draw)[0] for draw in range(1, DRAWS + 1)]}
    deepspeed_ranks.result({stage: parts[part](stage) for stage in STAGES})


def spread_of(steps, others):
    for other in others:
        if [step["loss_scale"] for step in other] != [step["loss_scale"] for step in steps]:
            raise RuntimeError("rounding decides which steps overflow, choose another scale")
    return float(f"{max(abs(a['loss'] / b['loss'] - 1) for other in others for a, b in zip(other, steps, strict=True)):.2g}")


def write(record):
    with open(os.path.join(OUT, "record.json"), "w", encoding="utf-8") as out:
        json.dump(record, out, separators=(",", ":"))
        out.write("\n")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    record = {"deepspeed": "0.19.8", "saved": SAVED, "ds_config": {stage: ds_config(stage) for stage in STAGES},
              "rows": deepspeed_ranks.make_model(os.path.join(OUT, "model"), vocabulary=32, hidden=8, inner=12)}
    write(record)
    runs = {part: deepspeed_ranks.run(__file__, WORLD, part) for part in ("save", "resume", "move")}
    for stage in STAGES:
        deepspeed_ranks.remove_scripts(os.path.join(OUT, f"z{stage}"))
    steps = {stage: made for stage, (made, _) in runs["save"].items()}
    if any(steps[stage][int(first):] != again for stage, made in runs["resume"].items() for first, again in made.items()):
        raise RuntimeError("DeepSpeed does not repeat its own steps from its checkpoint")
    write({**record, "steps": steps, "scaler": {stage: scalers for stage, (_, scalers) in runs["save"].items()},
           "spread": {stage: spread_of(steps[stage], moved) for stage, moved in runs["move"].items()}})


if __name__ == "__main__":
    worker(sys.argv[2]) if "--worker" in sys.argv else main()
