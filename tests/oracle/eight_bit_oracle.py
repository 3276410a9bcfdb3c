#!/usr/bin/env python3
"""Makes tests/fixtures/eight-bit: what bitsandbytes' AdamW8bit does, on a CPU.

model/: a Qwen2 of which some parameters have 8-bit moments and some have not, in bf16. record.json:
  maps      both dynamic maps, 256 numbers each
  blocks    drawn numbers, their codes and scales, by map
  adamw     one parameter of 5,000 numbers, start and gradients by made(), 50 steps: every seventh number of the parameter
            after some of them, both moments as codes and scales after the last
  run       20 steps of the model, as transformers' Trainer builds the optimizer: two groups by weight decay, embeddings in
            32 bits. `loss`: codes are the nearest ones, as on a GPU; `loss_table`: by the table of its CPU kernel, which
            takes a neighbour of the nearest code in places; `loss_32`: torch's AdamW
Nearest codes are bitsandbytes' own, too: its CPU kernel is for three types, and numbers of another type, float64, go to code
that takes the least distance.
"""
# python: tests/oracle/bitsandbytes_venv.sh
import json
import os
import sys

import bitsandbytes
import torch
from bitsandbytes import functional
from bitsandbytes.backends.cpu import ops
from bitsandbytes.optim import AdamW8bit, GlobalOptimManager
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import qwen2_oracle

OUT = os.path.join(os.path.dirname(HERE), "fixtures", "eight-bit")
BLOCK, NUMBERS, RUN_STEPS, BATCH = 256, 5000, 20, 2
CONFIG = qwen2_oracle.COMMON | {
    "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 96, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": 128, "tie_word_embeddings": False,
    "max_window_layers": 1, "torch_dtype": "float32", "transformers_version": "4.41.2"}
ADAMW = {"lr": 0.002, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}


def by_table(numbers, code, absmax, out, blocksize):
    """What the CPU backend does itself."""
    codes, scales = torch.ops.bitsandbytes.quantize_blockwise(numbers, code, blocksize)
    out.copy_(codes)
    absmax.copy_(scales)


def nearest(numbers, code, absmax, out, blocksize):
    by_table(numbers.double(), code, absmax, out, blocksize)


def floats(tensor):
    return qwen2_oracle.rounded(tensor)


def blocks(generator):
    out = {}
    for name, signed in (("signed", True), ("unsigned", False)):
        numbers = torch.randn(700, generator=generator) * 10 ** (4 * torch.rand(700, generator=generator) - 6)
        numbers[300:320] = 0
        numbers[512:600] *= 1e-20
        if not signed:
            numbers = numbers * numbers
        code = functional.create_dynamic_map(signed=signed)
        codes, scales = torch.empty(700, dtype=torch.uint8), torch.empty(3)
        nearest(numbers, code, scales, codes, BLOCK)
        out[name] = {"numbers": floats(numbers), "codes": codes.tolist(), "scales": floats(scales)}
    return out


def made(seed, count):
    """Numbers that the test makes again: xorshift64, over four decades."""
    out, x, mask = [], (88172645463325252 + seed * 2654435761) % 2 ** 64, 2 ** 64 - 1
    for _ in range(count):
        x ^= x << 13 & mask
        x ^= x >> 7
        x ^= x << 17 & mask
        out.append((x % 2001 - 1000) / 1000 * (1.0, 0.1, 0.01, 0.001)[(x >> 20) % 4])
    return torch.tensor(out, dtype=torch.float64).float()


def alone():
    GlobalOptimManager.get_instance().initialize()  # it knows parameters by their addresses, for ever
    parameter = torch.nn.Parameter(made(0, NUMBERS))
    optimizer = AdamW8bit([parameter], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    after = {}
    for step in range(50):
        optimizer.param_groups[0]["lr"] = 0.001 * (4 + 7 * step % 10)
        parameter.grad = made(step + 1, NUMBERS)
        optimizer.step()
        if step + 1 in (1, 2, 10, 50):
            after[str(step + 1)] = floats(parameter)[::7]
    state = optimizer.state[parameter]
    return {"numbers": NUMBERS, "every": 7, "after": after, "codes": [state["state1"].tolist(), state["state2"].tolist()],
            "scales": [floats(state["absmax1"]), floats(state["absmax2"])]}


def run(rows, make):
    model = qwen2_oracle.load(os.path.join(OUT, "model"))
    decayed = [p for n, p in model.named_parameters() if not ("bias" in n or "norm" in n)]
    others = [p for n, p in model.named_parameters() if "bias" in n or "norm" in n]
    arguments = {key: value for key, value in ADAMW.items() if key != "weight_decay"}
    optimizer = make([{"params": decayed, "weight_decay": ADAMW["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
                     **(arguments | {"betas": tuple(ADAMW["betas"])}))
    if make is AdamW8bit:
        manager = GlobalOptimManager.get_instance()
        manager.initialize()
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                manager.register_module_override(module, "weight", {"optim_bits": 32})
    losses = []
    for step in range(RUN_STEPS):
        optimizer.zero_grad()
        loss = qwen2_oracle.loss_of(model, *qwen2_oracle.batch(rows, step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    bits = {name: 8 if optimizer.state[p].get("state1", p).dtype == torch.uint8 else 32 for name, p in model.named_parameters()}
    return losses, bits


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(70)
    os.makedirs(os.path.join(OUT, "model"), exist_ok=True)
    qwen2_oracle.write_json(os.path.join(OUT, "model", "config.json"), CONFIG)
    weights = {name: value.bfloat16() for name, value in qwen2_oracle.weights(CONFIG, generator).items()}
    save_file(weights, os.path.join(OUT, "model", "model.safetensors"), metadata={"format": "pt"})
    os.chmod(os.path.join(OUT, "model", "model.safetensors"), 0o644)
    rows = qwen2_oracle.data(CONFIG, generator)
    record = {"bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__.split("+")[0],
              "maps": {"signed": floats(functional.create_dynamic_map(signed=True)),
                       "unsigned": floats(functional.create_dynamic_map(signed=False))},
              "blocks": blocks(generator)}
    table, _ = run(rows, AdamW8bit)
    ops._quant_blockwise_fp32_direct = nearest
    record["adamw"] = alone()
    losses, bits = run(rows, AdamW8bit)
    plain, _ = run(rows, torch.optim.AdamW)
    record["run"] = ADAMW | {"rows": rows, "batch": BATCH, "max_grad_norm": 1.0, "bits": bits, "loss": losses,
                             "loss_table": table, "loss_32": plain}
    qwen2_oracle.write_json(os.path.join(OUT, "record.json"), record)
    apart = lambda one, other: max(abs(a / b - 1) for a, b in zip(one, other))
    print(f"eight-bit: loss {losses[0]:.6f} to {losses[-1]:.6f}; apart from the table {apart(table, losses):.2e}, from 32 "
          f"bits {apart(plain, losses):.2e}")


if __name__ == "__main__":
    main()
