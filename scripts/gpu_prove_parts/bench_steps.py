"""The second call measures speed: random weights in Qwen2.5's sizes, full and LoRA, compared with a plain PyTorch loop on the
same GPU (bench/torch_loop.py) and with what `dsj plan --device` computes.
"""
import json
import os
import re
import statistics
import sys

import jobs
from machine import REPOSITORY, Skip, Step

ROW, STEPS_RUN, WARM_UP = 1024, 8, 3
MICRO = {("0.5B", False): 16, ("1.5B", False): 8, ("7B", False): 2,
         ("0.5B", True): 16, ("1.5B", True): 8, ("7B", True): 4}
LORA = {"lora": {"r": 16, "targetModules": "all-linear"}}


def device_of(machine):
    """The name of this GPU for dsj plan --device. Skip if there is none."""
    machine.need_gpus()
    shown = machine.facts()["GPUs"]
    for name in ("b200", "h200", "h100", "a100", "l40s", "4090", "3090", "a10g", "l4"):
        if re.search(rf"\b{name}\b", shown, re.IGNORECASE):
            return name
    raise Skip(f"NOT RUN: dsj plan knows no {shown}, so there is no peak to compare with")


def median_speed(steps):
    speeds = [step["tokens_per_second"] for step in steps if step.get("tokens_per_second")][WARM_UP:]
    assert speeds, "no step has a speed"
    return statistics.median(speeds)


def ours(size, lora):
    def run(machine):
        device = device_of(machine)
        model = jobs.make_large_model(machine, size)
        rows = jobs.make_rows(machine, 128, (ROW, ROW), jobs.SIZES[size]["vocabulary"])
        micro = MICRO[size, lora]
        manifest = jobs.job(model, rows, machine.folder("run-bench"), micro=micro, steps=STEPS_RUN,
                            training={"maxSeqLength": ROW, **(LORA if lora else {})})
        planned = jobs.plan(machine, manifest, "--device", device)
        if planned is None:
            raise Skip("NOT RUN: dsj plan says that it does not fit")
        speed = median_speed(jobs.run(machine, manifest))
        step = planned["roofline"]["step"]
        per_token = step["neededTeraflopPerRank"] / step["tokens"]
        peak = planned["roofline"]["device"]["teraflopsPerSecond"]
        found = {"tokens/s": round(speed), "share of peak": f"{speed * per_token / peak:.1%}",
                 "computed tokens/s": round(step["tokensPerSecond"]), "micro-batch": micro}
        machine.__dict__.setdefault("speeds", {})[size, lora] = speed
        return found
    return run


def plain(size, lora):
    def run(machine):
        machine.need_gpus()
        if not machine.torch:
            raise Skip("NOT RUN: this Python has no torch")
        shape = machine.write(os.path.join(machine.work, "shape.json"), jobs.SIZES[size])
        clean = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        said = machine.run(sys.executable, os.path.join(REPOSITORY, "bench/torch_loop.py"), "--shape", shape, "--micro",
                           str(MICRO[size, lora]), "--row", str(ROW), "--steps", str(STEPS_RUN), "--warm-up", str(WARM_UP),
                           *(["--lora", "16"] if lora else []), more=clean)
        found = json.loads(re.findall(r"^\{.*\}$", said, re.M)[-1])
        if "skipped" in found:
            raise Skip(f"NOT RUN: {found['skipped']}")
        before = machine.__dict__.get("speeds", {}).get((size, lora))
        ratio = {"dsj over it": f"{before / found['tokens/s']:.2f}"} if before else {}
        return {**found, **ratio}
    return run


def pair(size, lora, seconds):
    what = f"{size} {'LoRA' if lora else 'full'}"
    return [Step(what, "tokens per second of dsj run, share of peak", seconds, ours(size, lora)),
            Step(f"{what}, PyTorch", "tokens per second of a plain loop with flash attention and torch.compile", seconds,
                 plain(size, lora))]


SECONDS = {"0.5B": 30, "1.5B": 35, "7B": 60}
# The most important ones first, because a call may run out of time.
STEPS = [step for lora in (False, True) for size in SECONDS for step in pair(size, lora, SECONDS[size])]
