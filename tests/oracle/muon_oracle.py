#!/usr/bin/env python3
"""Makes tests/fixtures/muon.oracle.json: runs of Python DeepSpeed 0.19.8 with Muon, by deepspeed_run.py.

The fixture models and their rows (tests/fixtures/NAME, NAME.oracle.json), two ranks with one row each. Of a run: `model`,
`world`, `ds_config`, and per step `loss` and `lr` (of Muon's matrices). torch.compile is off: the same numbers without a
compiler. On a CPU without fp16 units DeepSpeed iterates in fp32 with "gram", and in bf16 with "standard".
"""
# python: tests/oracle/deepspeed_venv.sh
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(os.path.dirname(HERE), "fixtures")
PARAMS = {"muon_lr": 0.01, "adam_lr": 2e-3, "momentum": 0.9, "weight_decay": 0.1, "betas": [0.9, 0.95], "eps": 1e-8,
          "torch_adam": True}  # else DeepSpeed compiles its own


def case(model, stage, clipping=1.0, params=None, **more):
    return {"model": model, "data": model + ".json", "world": 2, "ds_config": {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": clipping,
        "zero_optimization": {"stage": stage, **({"reduce_scatter": False} if stage == 3 else {})},
        "optimizer": {"type": "Muon", "params": PARAMS if params is None else params}, **more}}


CASES = {
    "qwen2_z0": case("tiny-qwen2", 0),
    "qwen2_z0_defaults": case("tiny-qwen2", 0, params={"torch_adam": True}),
    "qwen2_z0_standard": case("tiny-qwen2", 0, params={**PARAMS, "ns_method": "standard"}),
    "qwen2_z0_cosine": case("tiny-qwen2", 0, scheduler={"type": "WarmupCosineLR", "params": {
        "total_num_steps": 20, "warmup_num_steps": 4, "warmup_min_ratio": 0.1}}),
    "qwen2_z0_warmup": case("tiny-qwen2", 0, scheduler={"type": "WarmupLR", "params": {
        "warmup_max_lr": 5e-3, "warmup_num_steps": 6}}),
    "gpt2_z0": case("tiny-gpt2", 0),
    "qwen2_z1_unclipped": case("tiny-qwen2", 1, clipping=0.0),
    "qwen2_z2_unclipped": case("tiny-qwen2", 2, clipping=0.0),
    "qwen2_z3_unclipped": case("tiny-qwen2", 3, clipping=0.0),
}


def main():
    with tempfile.TemporaryDirectory(prefix="dsj-muon-") as folder:
        models, cases = os.path.join(folder, "models"), os.path.join(folder, "cases.json")
        os.mkdir(models)
        for model in {case["model"] for case in CASES.values()}:
            os.symlink(os.path.join(FIXTURES, model), os.path.join(models, model))
            with open(os.path.join(FIXTURES, model + ".oracle.json"), encoding="utf-8") as file:
                rows = json.load(file)["rows"]
            with open(os.path.join(models, model + ".json"), "w", encoding="utf-8") as out:
                json.dump({"samples": rows}, out)
        with open(cases, "w", encoding="utf-8") as out:
            json.dump(CASES, out)
        subprocess.run([sys.executable, os.path.join(HERE, "deepspeed_run.py"), cases, "--models", models, "-o", folder],
                       env=dict(os.environ, TORCHDYNAMO_DISABLE="1", TORCH_COMPILE_DISABLE="1"), check=True)
        runs = {}
        for name in CASES:
            with open(os.path.join(folder, "deepspeed_0.19.8", name + ".json"), encoding="utf-8") as file:
                run = json.load(file)
            if run["status"] != "ok":
                raise RuntimeError(f"{name}: {run}")
            runs[name] = {key: run[key] for key in ("model", "world", "ds_config")}
            runs[name]["steps"] = [{key: step[key] for key in ("loss", "lr")} for step in run["steps"]]
        with open(os.path.join(FIXTURES, "muon.oracle.json"), "w", encoding="utf-8") as out:
            json.dump({"deepspeed": "0.19.8", "runs": runs}, out, separators=(",", ":"))
            out.write("\n")


if __name__ == "__main__":
    main()
