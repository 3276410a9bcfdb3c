#!/usr/bin/env python3
"""Measures how far transformers' own fifty AdamW steps lie apart when only rounding changes, for the fixtures of
qwen2_oracle.py and family_oracle.py: the scale of the tolerances in tests/engine/train/model_oracle_test.cc.

Run by scripts/oracle.sh; with names it measures those fixtures and keeps what the file has of others. Each fixture runs again under every switch of SWITCHES that this processor can take, and DRAWS
times from weights of which each is moved to a neighbouring fp32, up or down at random. Written per step: the
largest distance of any run from the recorded one.
"""
# python: tests/oracle/model_venv.sh
import json
import os
import subprocess
import sys

import torch

import qwen2_oracle

SWITCHES = ["", "ATEN_CPU_CAPABILITY=default", "ATEN_CPU_CAPABILITY=avx2", "MKL_ENABLE_INSTRUCTIONS=AVX2",
            "MKL_ENABLE_INSTRUCTIONS=SSE4_2", "MKL_CBWR=COMPATIBLE", "ONEDNN_MAX_CPU_ISA=AVX2"]
DRAWS = 8
FIXTURES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures")


def runs(draws, names):
    """The runs of this process, under the switch that its environment has: {fixture: [{"loss", "grad_norm"}]}."""
    torch.set_num_threads(1)
    plain, found = qwen2_oracle.load, {}
    for name in names:
        recorded = record(name)
        for draw in range(draws):
            def load(directory, draw=draw):
                model = plain(directory)
                generator = torch.Generator().manual_seed(draw)
                with torch.no_grad():
                    for parameter in model.parameters() if draw else []:
                        up = torch.randint(0, 2, parameter.shape, generator=generator).mul_(2).sub_(1)
                        parameter.mul_(1 + up * 2.0 ** -24 * 1.5)  # beyond half a unit, so that it rounds to a neighbour
                return model
            qwen2_oracle.load = load
            run = qwen2_oracle.adamw(os.path.join(FIXTURES, name), recorded["rows"], recorded["adamw"]["lr"])
            found.setdefault(name, []).append({key: run[key] for key in ("loss", "grad_norm")})
    return found


def fixtures():
    return sorted(file.removesuffix(".oracle.json") for file in os.listdir(FIXTURES)
                  if file.startswith("tiny-") and file.endswith(".oracle.json"))


def record(name):
    with open(os.path.join(FIXTURES, name + ".oracle.json"), encoding="utf-8") as file:
        return json.load(file)


def main():
    if sys.argv[1:2] == ["--switch"]:  # one, in a process of its own
        json.dump(runs(int(sys.argv[2]), sys.argv[3:]), sys.stdout)
        return
    every = {name: [] for name in sys.argv[1:] or fixtures()}
    for switch in SWITCHES:
        environment = dict(os.environ, **dict([switch.split("=")] if switch else []))
        draws = 1 if switch else 1 + DRAWS
        text = subprocess.run([sys.executable, os.path.abspath(__file__), "--switch", str(draws), *every], env=environment,
                              check=True, stdout=subprocess.PIPE).stdout
        for name, found in json.loads(text).items():
            every[name] += found
        print(f"spread: {switch or 'no switch'} done", flush=True)
    result = {"switches": SWITCHES, "draws": DRAWS, "torch": torch.__version__, "fixtures": {}}
    if sys.argv[1:]:
        with open(os.path.join(FIXTURES, "spread.oracle.json"), encoding="utf-8") as file:
            result["fixtures"] = json.load(file)["fixtures"]
    for name, found in every.items():
        adamw = record(name)["adamw"]
        apart = {key: [float(f"{max(abs(run[key][step] - adamw[key][step]) for run in found):.2g}")
                       for step in range(adamw["steps"])] for key in ("loss", "grad_norm")}
        result["fixtures"][name] = apart
        relative = [gap / value for gap, value in zip(apart["loss"], adamw["loss"])]
        norms = [gap / value for gap, value in zip(apart["grad_norm"], adamw["grad_norm"])]
        print(f"{name}: loss up to {max(apart['loss']):.1e} apart, {max(relative):.1e} relative; grad_norm {max(norms):.1e}")
    with open(os.path.join(FIXTURES, "spread.oracle.json"), "w", encoding="utf-8") as out:
        json.dump(result, out)
        out.write("\n")


if __name__ == "__main__":
    main()
