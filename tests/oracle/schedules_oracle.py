#!/usr/bin/env python3
"""Makes tests/fixtures/schedules.oracle.json: rates and momenta of transformers' and torch's schedules, step by step.

Run by scripts/oracle.sh. Value s is what the optimizer step after s steps uses.
"""
# python: tests/oracle/model_venv.sh
import json
import os
import warnings

import torch
from transformers import get_scheduler

STEPS, WARMUP, LR = 40, 7, 0.02
HUGGING_FACE = [
    ("constant", {}), ("constant_with_warmup", {}), ("linear", {}), ("cosine", {}), ("cosine", {"num_cycles": 1.3}),
    ("cosine_with_restarts", {}), ("cosine_with_restarts", {"num_cycles": 3}), ("polynomial", {}),
    ("polynomial", {"lr_end": 0.001, "power": 2.5}), ("inverse_sqrt", {}), ("inverse_sqrt", {"timescale": 4}),
    ("cosine_with_min_lr", {"min_lr": 0.002}), ("cosine_with_min_lr", {"min_lr_rate": 0.2, "num_cycles": 1.0}),
    ("cosine_warmup_with_min_lr", {"min_lr": 0.002}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1, "warmup_lr_rate": 0.3, "num_cycles": 1.0}),
    ("warmup_stable_decay", {"num_decay_steps": 10}),
    ("warmup_stable_decay", {"num_decay_steps": 8, "num_stable_steps": 9, "warmup_type": "cosine", "decay_type": "1-sqrt",
                             "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", {"num_decay_steps": 8, "warmup_type": "1-sqrt", "decay_type": "linear"}),
    ("warmup_stable_decay", {"num_decay_steps": 8, "num_cycles": 1.5}),
]
TORCH = [
    ("StepLR", {"step_size": 6}, "SGD"), ("StepLR", {"step_size": 6, "gamma": 0.5}, "SGD"),
    ("MultiStepLR", {"milestones": [3, 9, 9, 20], "gamma": 0.7}, "SGD"), ("ConstantLR", {}, "SGD"),
    ("ConstantLR", {"factor": 0.6, "total_iters": 9}, "SGD"), ("LinearLR", {}, "SGD"),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.8, "total_iters": 11}, "SGD"), ("ExponentialLR", {"gamma": 0.9}, "SGD"),
    ("PolynomialLR", {}, "SGD"), ("PolynomialLR", {"total_iters": 30, "power": 2.0}, "SGD"),
    ("CosineAnnealingLR", {"T_max": 12, "eta_min": 0.001}, "SGD"),
    ("CosineAnnealingWarmRestarts", {"T_0": 5, "T_mult": 2, "eta_min": 0.001}, "SGD"),
    ("CosineAnnealingWarmRestarts", {"T_0": 7}, "SGD"),
    ("CyclicLR", {"base_lr": 0.001, "max_lr": 0.01, "step_size_up": 6}, "SGD"),
    ("CyclicLR", {"base_lr": 0.001, "max_lr": 0.01, "step_size_up": 4, "step_size_down": 7, "mode": "triangular2",
                  "base_momentum": 0.7, "max_momentum": 0.95}, "AdamW"),
    ("CyclicLR", {"base_lr": 0.001, "max_lr": 0.01, "step_size_up": 5, "mode": "exp_range", "gamma": 0.95,
                  "cycle_momentum": False}, "AdamW"),
    ("OneCycleLR", {"max_lr": 0.05, "total_steps": 40}, "AdamW"),
    ("OneCycleLR", {"max_lr": 0.05, "epochs": 8, "steps_per_epoch": 5, "pct_start": 0.2, "anneal_strategy": "linear",
                    "div_factor": 10.0, "final_div_factor": 100.0, "base_momentum": 0.6, "max_momentum": 0.8}, "SGD"),
    ("OneCycleLR", {"max_lr": 0.05, "total_steps": 40, "three_phase": True, "cycle_momentum": False}, "AdamW"),
]


def optimizer(name):
    arguments = {"momentum": 0.5} if name == "SGD" else {}
    return getattr(torch.optim, name)([torch.nn.Parameter(torch.zeros(1))], lr=LR, **arguments)


def trace(made, scheduler):
    rates, momenta = [], []
    for _ in range(STEPS):
        group = made.param_groups[0]
        rates.append(float(group["lr"]))
        momenta.append(float(group["betas"][0] if "betas" in group else group["momentum"]))
        made.step()
        scheduler.step()
    return rates, momenta


def main():
    warnings.simplefilter("ignore")
    out = {"lr": LR, "steps": STEPS, "warmup_steps": WARMUP, "hugging_face": [], "torch": []}
    for kind, kwargs in HUGGING_FACE:
        made = optimizer("AdamW")
        rates, _ = trace(made, get_scheduler(kind, made, WARMUP, STEPS - 4, scheduler_specific_kwargs=kwargs))
        out["hugging_face"].append({"type": kind, "kwargs": kwargs, "lr": rates})
    for kind, params, name in TORCH:
        made = optimizer(name)
        rates, momenta = trace(made, getattr(torch.optim.lr_scheduler, kind)(made, **params))
        row = {"type": kind, "params": params, "optimizer": name, "lr": rates}
        if params.get("cycle_momentum", kind in ("CyclicLR", "OneCycleLR")):
            row["momentum"] = momenta
        out["torch"].append(row)
    path = os.path.join(os.path.dirname(__file__), "..", "fixtures", "schedules.oracle.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(out, file)
        file.write("\n")


if __name__ == "__main__":
    main()
