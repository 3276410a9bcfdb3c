#!/usr/bin/env python3
"""Makes tests/fixtures/autocast.oracle.json: runs in fp16, of the fixture model tiny-qwen2 on its rows.

`runs`: per run `model`, `world`, `micro`, `accum`, `ds_config`, and per step `loss`, `loss_scale` (as used in it) and
`skipped`. Every step takes all eight rows. Where `first_scale` is there the loss scale begins at it, and doubles after
`growth` steps without an overflow; DeepSpeed's torch_autocast and amp have no keys for them. 4096 overflows nowhere;
runs that are called overflow begin so high that steps are skipped, and come back to it.
- fp16_z0, fp16_z2, fp16_z3, fp16_z0_overflow: Python DeepSpeed 0.19.8 with torch_autocast in float16, by
  deepspeed_run.py, on two ranks. Nothing is clipped: at stages 1 to 3 DeepSpeed clips what its scaler has not divided.
- enabled_z1_overflow .. enabled_z3_overflow: the same with fp16.enabled.
- amp_o1, amp_o1_overflow, amp_o2_overflow: what apex means in plain PyTorch, for apex needs a GPU and DeepSpeed 0.19.8
  has no amp. O1: torch.autocast in float16, GradScaler, AdamW on fp32 parameters. O2: an fp16 model, AdamW on fp32
  masters of what fp16 holds of the weights. One process.
`stuck`: steps of DeepSpeed's fp16_z0_overflow at stages 2 and 3, where its scaler never hears of an overflow.
`spread`: per run the largest relative distance of a loss from the same run with each weight moved to a neighbouring
fp32 (`moved`; all of them skip the same steps), of amp_o1's from the run without autocast (`fp32`), and of amp_o2's from the
run with buffers in fp16 (`buffers`): apex rounds the rope frequencies.
"""
# python: tests/oracle/deepspeed_venv.sh
import json
import math
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(os.path.dirname(HERE), "fixtures")
MODEL, STEPS, STAGES, DRAWS, SCALE, NEVER = "tiny-qwen2", 20, (0, 2, 3), 4, 4096.0, 2000
OVERFLOW = {"first_scale": 2.0 ** 24, "growth": 3}
PARAMS = {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}


def ds_config(micro, stage=0, clipping=0.0, **more):
    return {"train_micro_batch_size_per_gpu": micro, "gradient_accumulation_steps": 1, "gradient_clipping": clipping,
            "zero_optimization": {"stage": stage},
            "optimizer": {"type": "AdamW", "params": {**PARAMS, "torch_adam": True}}, **more}


def case(stage, **more):
    return {"model": MODEL, "data": MODEL + ".json", "world": 2, "ds_config": ds_config(4, stage, **more)}


def autocast_case(stage, **scale):
    return {**case(stage, torch_autocast={"enabled": True, "dtype": "float16"}), "first_scale": SCALE, **scale}


def enabled_case(stage):
    power = int(math.log2(OVERFLOW["first_scale"]))
    return case(stage, fp16={"enabled": True, "initial_scale_power": power, "loss_scale_window": OVERFLOW["growth"],
                             "hysteresis": 1, "min_loss_scale": 1})


def moved(model, draw):
    """Each weight at the next fp32, up or down by the seed."""
    import torch
    generator = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for parameter in model.parameters() if draw else []:
            up = torch.randint(0, 2, parameter.shape, generator=generator).mul_(2).sub_(1)
            parameter.mul_(1 + up * 2.0 ** -24 * 1.5)
    return model


def halved(model, buffers):
    """Its parameters in fp16; fp32 masters of them."""
    import torch
    for tensor in [*model.parameters(), *(model.buffers() if buffers else [])]:
        tensor.data = tensor.data.to(torch.float16 if tensor.is_floating_point() else tensor.dtype)
    return [parameter.detach().float().requires_grad_() for parameter in model.parameters()]


def plain_loop(rows, level="O1", first_scale=SCALE, growth=NEVER, draw=0, buffers=False):
    """apex's levels. buffers: at O2 they are fp16, too."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(1)
    model = moved(AutoModelForCausalLM.from_pretrained(os.path.join(FIXTURES, MODEL), dtype=torch.float32,
                                                       attn_implementation="eager"), draw)
    working, scales = list(model.parameters()), level != "O0"
    masters = halved(model, buffers) if level == "O2" else working
    optimizer = torch.optim.AdamW(masters, **PARAMS)
    scaler = torch.amp.GradScaler("cpu", init_scale=first_scale, growth_interval=growth, enabled=scales)
    steps = []
    model.train()
    ids, labels = (torch.tensor([row[key] for row in rows]) for key in ("input_ids", "labels"))
    for _ in range(STEPS):
        with torch.autocast("cpu", dtype=torch.float16, enabled=level == "O1"):
            logits = model(input_ids=ids, use_cache=False).logits.float()
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels[:, 1:].reshape(-1),
                                                 ignore_index=-100)
        used = scaler.get_scale()
        scaler.scale(loss).backward()
        if level == "O2":
            for master, parameter in zip(masters, working, strict=True):
                master.grad = parameter.grad.float()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        scaler.step(optimizer)
        scaler.update()
        model.zero_grad()
        if level == "O2":
            for master, parameter in zip(masters, working, strict=True):
                parameter.data.copy_(master.data)
        steps.append({"loss": loss.item(), "loss_scale": used, "skipped": int(scales and scaler.get_scale() < used)})
    return steps


def apart(steps, others):
    return float(f"{max(abs(a['loss'] / b['loss'] - 1) for a, b in zip(steps, others, strict=True)):.2g}")


def spread_of(name, steps, others):
    """The largest distance of the other runs; they skip what this one skips."""
    for other in others:
        if [step["loss_scale"] for step in other] != [step["loss_scale"] for step in steps]:
            raise RuntimeError(f"{name}: rounding decides which steps overflow, choose another scale")
    return max(apart(other, steps) for other in others)


def amp_run(rows, name, level, scale):
    amp = {"enabled": True, "opt_level": level, **({} if scale else {"max_loss_scale": SCALE})}
    steps = plain_loop(rows, level, **scale)
    run = {"model": MODEL, "world": 1, "micro": len(rows), "accum": 1, **scale,
           "ds_config": ds_config(len(rows), clipping=1.0, amp=amp), "steps": steps}
    others = [plain_loop(rows, level, draw=draw, **scale) for draw in range(1, DRAWS + 1)]
    spread = {"moved": spread_of(name, steps, others)}
    if level == "O2":
        spread["buffers"] = apart(plain_loop(rows, level, buffers=True, **scale), steps)
    elif not scale:
        spread["fp32"] = apart(plain_loop(rows, "O0"), steps)
    return run, spread


def amp_runs(rows):
    """{name: run}, {name: spread}"""
    made = {name: amp_run(rows, name, level, scale) for name, level, scale in
            (("amp_o1", "O1", {}), ("amp_o1_overflow", "O1", OVERFLOW), ("amp_o2_overflow", "O2", OVERFLOW))}
    return {name: run for name, (run, _) in made.items()}, {name: spread for name, (_, spread) in made.items()}


def deepspeed_runs(rows, cases, switch=""):
    """{name: run} of {name: case}. switch: NAME=VALUE in the environment, which makes another processor of this one."""
    with tempfile.TemporaryDirectory(prefix="dsj-autocast-") as folder:
        models, file = os.path.join(folder, "models"), os.path.join(folder, "cases.json")
        os.mkdir(models)
        os.symlink(os.path.join(FIXTURES, MODEL), os.path.join(models, MODEL))
        with open(os.path.join(models, MODEL + ".json"), "w", encoding="utf-8") as out:
            json.dump({"samples": rows}, out)
        with open(file, "w", encoding="utf-8") as out:
            json.dump(cases, out)
        subprocess.run([sys.executable, os.path.join(HERE, "deepspeed_run.py"), file, "--models", models, "-o", folder],
                       check=True, env=dict(os.environ, **dict([switch.split("=")] if switch else [])))
        runs = {}
        for name in cases:
            with open(os.path.join(folder, "deepspeed_0.19.8", name + ".json"), encoding="utf-8") as file:
                run = json.load(file)
            if run["status"] != "ok":
                raise RuntimeError(f"{name}: {run}")
            runs[name] = {key: run[key] for key in ("model", "world", "micro", "accum", "ds_config")}
            runs[name] |= {key: cases[name][key] for key in OVERFLOW if key in cases[name]}
            # At stage 0 the engine does not count what torch's scaler skips.
            runs[name]["steps"] = [{"loss": step["loss"], "loss_scale": step["loss_scale"], "skipped":
                                    int(step["skipped"] > 0 or step["loss_scale_next"] < step["loss_scale"])}
                                   for step in run["steps"]]
        return runs


def main():
    with open(os.path.join(FIXTURES, MODEL + ".oracle.json"), encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    runs, spread = amp_runs(rows)
    wanted = {f"fp16_z{stage}": autocast_case(stage) for stage in STAGES}
    wanted["fp16_z0_overflow"] = autocast_case(0, **OVERFLOW)
    wanted |= {f"enabled_z{stage}_overflow": enabled_case(stage) for stage in (1, 2, 3)}
    stuck = {f"stuck_z{stage}": autocast_case(stage, **OVERFLOW) for stage in (2, 3)}
    again = {name + "_moved": {**one, "draw": 1} for name, one in wanted.items()}
    made = deepspeed_runs(rows, {**wanted, **again, **stuck})
    for name in wanted:
        runs[name] = made[name]
        spread[name] = {"moved": spread_of(name, made[name]["steps"], [made[name + "_moved"]["steps"]])}
    with open(os.path.join(FIXTURES, "autocast.oracle.json"), "w", encoding="utf-8") as out:
        json.dump({"deepspeed": "0.19.8", "runs": runs, "stuck": {name: made[name]["steps"] for name in stuck},
                   "spread": spread}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
