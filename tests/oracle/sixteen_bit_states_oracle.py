#!/usr/bin/env python3
"""Makes tests/fixtures/sixteen_bit_states.oracle.json: runs of Python DeepSpeed 0.19.8 with masters, or masters and moments, in
16 bits, of the fixture model tiny-qwen2 on its rows.

The optimizer is offloaded, so DeepSpeed's own CPU kernel updates: it is compiled (a minute), for a processor with AVX-512 or
AVX2. `runs`: per run `model`, `world`, `micro`, `accum`, `ds_config`, and per step `loss`, `loss_scale` and `skipped`.
`spread`: per run the largest relative distance of a loss from the same run under SWITCHES, and with each weight moved to a
neighbouring fp32, which bf16 weights do not see.
"""
# python: tests/oracle/deepspeed_venv.sh
import json
import os

from autocast_oracle import FIXTURES, MODEL, PARAMS, apart, deepspeed_runs

FORMS = {
    "bf16_masters": {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}},
    "bf16_states": {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}},
    "fp16_masters": {"fp16": {"enabled": True, "fp16_master_weights_and_grads": True, "initial_scale_power": 12}},
}
FORMS["fp16_states"] = FORMS["fp16_masters"]
STAGES = (2, 3)
SWITCHES = ("ATEN_CPU_CAPABILITY=default", "MKL_CBWR=COMPATIBLE", "ONEDNN_MAX_CPU_ISA=AVX2")


def case(form, stage, **more):
    # With an eps of 1e-8 DeepSpeed's run ends at a loss of 100: fp16 holds no second moment below 6e-8.
    params = {**PARAMS, **({"fp32_optimizer_states": False, "eps": 1e-3} if form == "fp16_states" else {})}
    return {"model": MODEL, "data": MODEL + ".json", "world": 2, **more, "ds_config": {
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu"}},
        "optimizer": {"type": "AdamW", "params": params}, **FORMS[form]}}


def main():
    with open(os.path.join(FIXTURES, MODEL + ".oracle.json"), encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    wanted = {f"{form}_z{stage}": case(form, stage) for form in FORMS for stage in STAGES}
    made = deepspeed_runs(rows, wanted)
    others = [deepspeed_runs(rows, wanted, switch) for switch in SWITCHES]
    others.append(deepspeed_runs(rows, {name: {**one, "draw": 1} for name, one in wanted.items()}))
    spread = {name: max(apart(other[name]["steps"], run["steps"]) for other in others) for name, run in made.items()}
    with open(os.path.join(FIXTURES, "sixteen_bit_states.oracle.json"), "w", encoding="utf-8") as out:
        json.dump({"deepspeed": "0.19.8", "switches": SWITCHES, "runs": made, "spread": spread}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
