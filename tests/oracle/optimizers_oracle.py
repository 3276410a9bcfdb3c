#!/usr/bin/env python3
"""Makes tests/fixtures/optimizers.oracle.json: what torch.optim's classes do to two small parameters in 50 steps.

Run by scripts/oracle.sh. All in float64, so that a difference is the rounding of the other side alone. Lion and LAMB are not in
torch.optim: their formulas are written out below. The rate changes from step to step; some gradients are zero, one element's always.
"""
# python: tests/oracle/model_venv.sh
import json
import math
import os

import torch

STEPS, SHAPES, KEPT = 50, [[4, 6], [9]], [1, 2, 10, 50]
LION_DEFAULTS = {"betas": [0.9, 0.999], "weight_decay": 0.0}
LAMB_DEFAULTS = {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "max_coeff": 10.0, "min_coeff": 0.01,
                 "bias_correction": True, "eps_inside_sqrt": False}
# ds_config's type and params -> the class and arguments of torch.optim, where they differ.
CASES = [
    ("AdamW", {"lr": 0.02, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1}, None),
    ("AdamW", {"lr": 0.02}, ("AdamW", {"lr": 0.02, "weight_decay": 0.0})),  # FusedAdam's default, not torch's 0.01
    ("Adam", {"lr": 0.02, "weight_decay": 0.1}, ("AdamW", {"lr": 0.02, "weight_decay": 0.1})),
    ("Adam", {"lr": 0.02, "weight_decay": 0.1, "adam_w_mode": False}, ("Adam", {"lr": 0.02, "weight_decay": 0.1})),
    ("Adam", {"lr": 0.02, "torch_adam": True, "maximize": True}, ("AdamW", {"lr": 0.02, "maximize": True,
                                                                             "weight_decay": 0.0})),
    ("SGD", {"lr": 0.05}, None),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}, None),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "maximize": True}, None),
    ("Adagrad", {"lr": 0.1, "weight_decay": 0.01}, None),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.05, "initial_accumulator_value": 0.2, "eps": 1e-5}, None),
    ("RMSprop", {"lr": 0.01, "weight_decay": 0.01}, None),
    ("RMSprop", {"lr": 0.01, "alpha": 0.9, "eps": 1e-5, "centered": True}, None),
    ("RMSprop", {"lr": 0.01, "momentum": 0.8, "centered": True}, None),
    ("Adadelta", {"weight_decay": 0.01}, None),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4}, None),
    ("Adamax", {"weight_decay": 0.01}, None),
    ("Adamax", {"lr": 0.02, "betas": [0.8, 0.9], "eps": 1e-4}, None),
    ("NAdam", {"weight_decay": 0.01}, None),
    ("NAdam", {"lr": 0.02, "momentum_decay": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}, None),
    ("RAdam", {"weight_decay": 0.01}, None),
    ("RAdam", {"lr": 0.02, "betas": [0.8, 0.9], "weight_decay": 0.1, "decoupled_weight_decay": True}, None),
    ("ASGD", {"weight_decay": 0.01}, None),
    ("ASGD", {"lr": 0.05, "lambd": 0.01, "alpha": 0.5, "t0": 20}, None),
    ("Rprop", {"lr": 0.01}, None),
    ("Rprop", {"lr": 0.01, "etas": [0.4, 1.5], "step_sizes": [1e-3, 0.02]}, None),
    ("Lion", {"lr": 0.01, "betas": [0.9, 0.99], "weight_decay": 0.1}, None),
    ("Lion", {"lr": 0.01}, None),
    ("Lamb", {"lr": 0.02, "weight_decay": 0.1}, None),
    ("Lamb", {"lr": 0.02, "eps": 1e-4, "eps_inside_sqrt": True, "bias_correction": False, "max_coeff": 0.6,
              "min_coeff": 0.5}, None),
]


class Lion:
    def __init__(self, parameters, lr, **arguments):
        options = LION_DEFAULTS | arguments
        self.parameters, (self.b1, self.b2), self.decay = parameters, options["betas"], options["weight_decay"]
        self.m = [torch.zeros_like(p) for p in parameters]
        self.param_groups = [{"lr": lr}]

    def step(self):
        lr = self.param_groups[0]["lr"]
        for p, m in zip(self.parameters, self.m):
            direction = self.b1 * m + (1 - self.b1) * p.grad
            sign = torch.where(direction < 0, -1.0, 1.0).to(p.dtype)  # sign(0) is 1 in DeepSpeed's kernels
            p.data = p.data * (1 - lr * self.decay) - lr * sign
            m.copy_(self.b2 * m + (1 - self.b2) * p.grad)


class Lamb:
    def __init__(self, parameters, lr, **arguments):
        self.options = LAMB_DEFAULTS | arguments
        self.parameters, self.t = parameters, 0
        self.m = [torch.zeros_like(p) for p in parameters]
        self.v = [torch.zeros_like(p) for p in parameters]
        self.param_groups = [{"lr": lr}]

    def step(self):
        o, lr = self.options, self.param_groups[0]["lr"]
        (b1, b2), self.t = o["betas"], self.t + 1
        if o["bias_correction"]:
            lr *= math.sqrt(1 - b2 ** self.t) / (1 - b1 ** self.t)
        for p, m, v in zip(self.parameters, self.m, self.v):
            m.copy_(b1 * m + (1 - b1) * p.grad)
            v.copy_(b2 * v + (1 - b2) * p.grad ** 2)
            root = (v + o["eps"]).sqrt() if o["eps_inside_sqrt"] else v.sqrt() + o["eps"]
            update = m / root + o["weight_decay"] * p.data
            weights, updates = p.data.norm().item(), update.norm().item()
            c = min(max(weights / updates, o["min_coeff"]), o["max_coeff"]) if weights and updates else 1.0
            p.data = p.data - lr * c * update


def flat(tensors):
    return [value for tensor in tensors for value in tensor.detach().flatten().tolist()]


def run(kind, params, torch_form, start, gradients, factors):
    name, arguments = torch_form or (kind, params)
    ours = {"Lion": Lion, "Lamb": Lamb}.get(name)
    parameters = [torch.nn.Parameter(p.double()) for p in start]
    optimizer = ours(parameters, **arguments) if ours else getattr(torch.optim, name)(parameters, foreach=False,
                                                                                      **arguments)
    base = optimizer.param_groups[0]["lr"]
    kept = {}
    for step in range(1, STEPS + 1):
        for parameter, gradient in zip(parameters, gradients[step - 1]):
            parameter.grad = gradient.double()
        optimizer.param_groups[0]["lr"] = base * factors[step - 1]
        optimizer.step()
        if step in KEPT:
            kept[str(step)] = flat(parameters)
    return {"type": kind, "params": params, "lr": base, "after": kept}


def main():
    generator = torch.Generator().manual_seed(11)
    draw = lambda shape: torch.randn(shape, generator=generator)
    start = [draw(shape) for shape in SHAPES]
    gradients = [[draw(shape) * (0.2 + step % 3) for shape in SHAPES] for step in range(STEPS)]
    for step, (first, second) in enumerate(gradients):
        first[0, 0] = 0.0
        if step % 4 == 1:
            second[2:5] = 0.0
    factors = [round(0.4 + 0.1 * (7 * step % 10), 1) for step in range(STEPS)]
    cases = [run(kind, params, form, start, gradients, factors) for kind, params, form in CASES]
    path = os.path.join(os.path.dirname(__file__), "..", "fixtures", "optimizers.oracle.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"torch": torch.__version__.split("+")[0], "shapes": SHAPES, "start": flat(start), "lr_factors": factors,
                   "gradients": [flat(pair) for pair in gradients], "cases": cases}, out, indent=None)
        out.write("\n")


if __name__ == "__main__":
    main()
