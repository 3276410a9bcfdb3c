#!/usr/bin/env python3
"""Makes tests/fixtures/autocast.oracle.json: runs in fp16 by autocast, of the fixture model tiny-qwen2 on its rows.

`runs`: per run `model`, `world`, `micro`, `accum`, `ds_config`, and per step `loss`, `loss_scale` (as used in it) and
`skipped`. Every step takes all eight rows. The first loss scale is 4096, with which nothing overflows.
- fp16_z0, fp16_z2, fp16_z3: Python DeepSpeed 0.19.8 with torch_autocast in float16, by deepspeed_run.py, on two ranks.
  Nothing is clipped: at stages 1 to 3 DeepSpeed clips what its scaler has not yet divided.
- amp_o1: what apex means by O1 in plain PyTorch, for apex needs a GPU and DeepSpeed 0.19.8 has no amp: torch.autocast
  in float16, GradScaler, AdamW on fp32 parameters, one process.
`spread`: per run the largest relative distance of a loss from the same run with each weight moved to a neighbouring
fp32 (`moved`), and of amp_o1's from the run without autocast (`fp32`).
"""
# python: tests/oracle/deepspeed_venv.sh
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(os.path.dirname(HERE), "fixtures")
MODEL, STEPS, STAGES, DRAWS, SCALE = "tiny-qwen2", 20, (0, 2, 3), 4, 4096.0
PARAMS = {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}


def ds_config(micro, stage=0, clipping=0.0, **more):
    return {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": 1, "gradient_clipping": clipping,
            "zero_optimization": {"stage": stage},
            "optimizer": {"type": "AdamW", "params": {**PARAMS, "torch_adam": True}}, **more}


def case(stage, **more):
    autocast = {"enabled": True, "dtype": "float16"}
    return {"model": MODEL, "data": MODEL + ".json", "world": 2, "first_scale": SCALE,
            "ds_config": ds_config(4, stage, torch_autocast=autocast), **more}


def moved(model, draw):
    """Each weight at the next fp32, up or down by the seed."""
    import torch
    generator = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for parameter in model.parameters() if draw else []:
            up = torch.randint(0, 2, parameter.shape, generator=generator).mul_(2).sub_(1)
            parameter.mul_(1 + up * 2.0 ** -24 * 1.5)
    return model


def plain_loop(rows, draw=0, half=True):
    """half: with autocast and the scaler."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)
    model = moved(AutoModelForCausalLM.from_pretrained(os.path.join(FIXTURES, MODEL), dtype=torch.float32,
                                                       attn_implementation="eager"), draw)
    optimizer = torch.optim.AdamW(model.parameters(), **PARAMS)
    scaler, steps = torch.amp.GradScaler("cpu", init_scale=SCALE, enabled=half), []
    model.train()
    ids, labels = (torch.tensor([row[key] for row in rows]) for key in ("input_ids", "labels"))
    for _ in range(STEPS):
        with torch.autocast("cpu", dtype=torch.float16, enabled=half):
            logits = model(input_ids=ids, use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1),
                                                 ignore_index=-100)
        used = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        steps.append({"loss": loss.item(), "loss_scale": used, "skipped": int(half and scaler.get_scale() < used)})
    return steps


def apart(steps, others):
    return float(f"{max(abs(a['loss'] / b['loss'] - 1) for a, b in zip(steps, others, strict=True)):.2g}")


def amp_runs(rows):
    """{name: run}, {name: spread}"""
    steps = plain_loop(rows)
    amp = {"enabled": True, "opt_level": "O1", "max_loss_scale": SCALE}
    run = {"model": MODEL, "world": 1, "micro": len(rows), "accum": 1,
           "ds_config": ds_config(len(rows), clipping=1.0, amp=amp), "steps": steps}
    spread = {"moved": max(apart(plain_loop(rows, draw), steps) for draw in range(1, DRAWS + 1)),
              "fp32": apart(plain_loop(rows, half=False), steps)}
    return {"amp_o1": run}, {"amp_o1": spread}


def deepspeed_runs(rows, cases):
    """{name: run} of {name: case}."""
    with tempfile.TemporaryDirectory(prefix="dsj-autocast-") as folder:
        models, file = os.path.join(folder, "models"), os.path.join(folder, "cases.json")
        os.mkdir(models)
        os.symlink(os.path.join(FIXTURES, MODEL), os.path.join(models, MODEL))
        with open(os.path.join(models, MODEL + ".json"), "w", encoding="utf-8") as out:
            json.dump({"samples": rows}, out)
        with open(file, "w", encoding="utf-8") as out:
            json.dump(cases, out)
        subprocess.run([sys.executable, os.path.join(HERE, "deepspeed_run.py"), file, "--models", models, "-o", folder],
                       check=True)
        runs = {}
        for name in cases:
            with open(os.path.join(folder, "deepspeed_0.19.8", name + ".json"), encoding="utf-8") as file:
                run = json.load(file)
            if run["status"] != "ok":
                raise RuntimeError(f"{name}: {run}")
            runs[name] = {key: run[key] for key in ("model", "world", "micro", "accum", "ds_config")}
            runs[name]["steps"] = [{key: step[key] for key in ("loss", "loss_scale", "skipped")}
                                   for step in run["steps"]]
        return runs


def main():
    with open(os.path.join(FIXTURES, MODEL + ".oracle.json"), encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    runs, spread = amp_runs(rows)
    wanted = {f"fp16_z{stage}": case(stage) for stage in STAGES}
    made = deepspeed_runs(rows, {**wanted, **{name + "_moved": {**one, "draw": 1} for name, one in wanted.items()}})
    for name in wanted:
        runs[name] = made[name]
        spread[name] = {"moved": apart(made[name + "_moved"]["steps"], made[name]["steps"])}
    with open(os.path.join(FIXTURES, "autocast.oracle.json"), "w", encoding="utf-8") as out:
        json.dump({"deepspeed": "0.19.8", "runs": runs, "spread": spread}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
