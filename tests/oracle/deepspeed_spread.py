#!/usr/bin/env python3
"""Measures how far DeepSpeed's own runs lie apart when only rounding changes: the reason for the tolerances of
scripts/golden_table.py where an optimizer makes whole steps of it.

Usage: "$(tests/oracle/deepspeed_venv.sh)" tests/oracle/deepspeed_spread.py GOLDEN_DIRECTORY [--only REGEX]
Each recorded run of RUNS is made again under SWITCHES and from DRAWS starts whose weights moved to a neighbouring fp32.
Writes tests/fixtures/deepspeed_spread.json: per run the largest relative distance of a loss and of a grad_norm from the
recorded run, over the 20 steps, and of the final weights (relative L2 over the recorded samples).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(os.path.dirname(HERE), "fixtures", "deepspeed_spread.json")
# A sign, a division by a gradient's own size: rounding alone makes a full step. The first is AdamW's, to compare with.
RUNS = ["qwen2_fp32_z2_w2_adamw_default", "qwen2_fp32_z2_w2_lion_off", "qwen2_fp32_z2_w2_adagrad"]
# Not among the recorded runs: compared with its own first run.
MORE = {"qwen2_fp32_z2_w2_rmsprop": {"type": "RMSprop", "params": {
    "lr": 1e-3, "alpha": 0.9, "momentum": 0.9, "centered": True, "weight_decay": 0.01}}}
SWITCHES = ["", "ATEN_CPU_CAPABILITY=default", "MKL_ENABLE_INSTRUCTIONS=SSE4_2"]
DRAWS = 3


def made(case, name, models, switch):
    with tempfile.TemporaryDirectory(prefix="dsj-spread-") as folder:
        cases = os.path.join(folder, "cases.json")
        with open(cases, "w", encoding="utf-8") as out:
            json.dump({name: case}, out)
        environment = dict(os.environ, **dict([switch.split("=")] if switch else []))
        subprocess.run([sys.executable, os.path.join(HERE, "deepspeed_run.py"), cases, "--models", models, "-o", folder],
                       env=environment, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(folder, "deepspeed_0.19.8", name + ".json"), encoding="utf-8") as file:
            result = json.load(file)
    if result["status"] != "ok":
        raise RuntimeError(f"{name} {switch}: {result}")
    return result


def apart(run, recorded):
    def of(key):
        pairs = [(a[key], b[key]) for a, b in zip(run["steps"], recorded["steps"])]
        return max((abs(a - b) / abs(b) for a, b in pairs if b), default=0.0)
    gap = size = 0.0
    for name, stats in recorded["final_stats"].items():
        for a, b in zip(run["final_stats"][name]["sample"], stats["sample"]):
            gap, size = gap + (a - b) ** 2, size + b ** 2
    return {"loss": of("loss"), "grad_norm": of("grad_norm"), "weights": (gap / size) ** 0.5}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    models = os.path.join(os.path.abspath(options.golden), "models")
    spread = {}
    if os.path.exists(OUT):
        with open(OUT, encoding="utf-8") as file:
            spread = json.load(file)["runs"]
    with open(os.path.join(options.golden, "deepspeed_0.19.8", RUNS[0] + ".json"), encoding="utf-8") as file:
        plain = json.load(file)
    for name in RUNS + list(MORE):
        if not re.search(options.only, name):
            continue
        recorded = None
        if name in MORE:
            config = dict(plain["ds_config"], optimizer=MORE[name], zero_allow_untested_optimizer=True)
            case = {"model": plain["model"], "data": plain["data"], "world": plain["world"], "ds_config": config}
        else:
            with open(os.path.join(options.golden, "deepspeed_0.19.8", name + ".json"), encoding="utf-8") as file:
                recorded = json.load(file)
            case = {key: recorded[key] for key in ("model", "data", "world", "ds_config")}
        widest = {"loss": 0.0, "grad_norm": 0.0, "weights": 0.0}
        for switch, draw in [(switch, 0) for switch in SWITCHES] + [("", draw + 1) for draw in range(DRAWS)]:
            run = made(case | ({"draw": draw} if draw else {}), name, models, switch)
            recorded = recorded or run
            found = apart(run, recorded)
            print(f"{name:34} {switch or 'no switch':34} draw {draw}: "
                  + " ".join(f"{key} {value:.1e}" for key, value in found.items()), flush=True)
            widest = {key: max(value, found[key]) for key, value in widest.items()}
        spread[name] = {key: float(f"{value:.2g}") for key, value in widest.items()}
        with open(OUT, "w", encoding="utf-8") as out:
            json.dump({"deepspeed": "0.19.8", "switches": SWITCHES, "draws": DRAWS, "runs": spread}, out, indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
