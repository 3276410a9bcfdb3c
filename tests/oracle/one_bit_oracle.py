#!/usr/bin/env python3
"""Makes tests/fixtures/one_bit.oracle.json: 60 steps of DeepSpeed 0.18.9's OneBitAdam, OneBitLamb and ZeroOneAdam.

Their own classes with their own compressed backend, on ranks of their own over Gloo. Two things stand in: an object for the
engine, of which they read a rank and switch the averaging of gradients, and numpy for the packing of bits, whose operation
DeepSpeed does not build for CPUs. Parameters are those of a small Qwen2, in the order of its named_parameters(), and start at 0.

Gradient of (step s, rank r, parameter i), before the averaging: the generator mt19937, seeded with draw + 10000 s + 1000 r + i,
gives one number per element, scaled to [-1, 1) in fp32. The first element of each parameter is always 0. The rate of step s is
0.001 (1 + s mod 3). `draw` is the first for which no sign is decided by rounding: `closest` is the smallest number that was
compressed, over the root mean square of its vector; an exact 0 does not count.
"""
# python: tests/oracle/one_bit_venv.sh
import json
import os
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, FREEZE, CLOSEST = 60, 20, 4e-6
# After so many steps: the warm-up's end, the first compressed ones, ranks apart and together. The last one whole.
KEPT, SAMPLES = [2, 20, 21, 22, 39, 58, 60], 4
HIDDEN, INNER, VOCABULARY, HEAD = 8, 16, 24, 4
LAYER = "model.layers.0."
PARAMETERS = [
    ("model.embed_tokens.weight", [VOCABULARY, HIDDEN]),
    (LAYER + "self_attn.q_proj.weight", [HIDDEN, HIDDEN]), (LAYER + "self_attn.q_proj.bias", [HIDDEN]),
    (LAYER + "self_attn.k_proj.weight", [HEAD, HIDDEN]), (LAYER + "self_attn.k_proj.bias", [HEAD]),
    (LAYER + "self_attn.v_proj.weight", [HEAD, HIDDEN]), (LAYER + "self_attn.v_proj.bias", [HEAD]),
    (LAYER + "self_attn.o_proj.weight", [HIDDEN, HIDDEN]),
    (LAYER + "mlp.gate_proj.weight", [INNER, HIDDEN]), (LAYER + "mlp.up_proj.weight", [INNER, HIDDEN]),
    (LAYER + "mlp.down_proj.weight", [HIDDEN, INNER]),
    (LAYER + "input_layernorm.weight", [HIDDEN]), (LAYER + "post_attention_layernorm.weight", [HIDDEN]),
    ("model.norm.weight", [HIDDEN]), ("lm_head.weight", [VOCABULARY, HIDDEN]),
]
LIMITS = {"coeff_beta": 0.8, "max_coeff": 0.3, "min_coeff": 0.02, "factor_max": 1.5, "factor_min": 0.9, "factor_threshold": 0.05}
INTERVALS = {"var_freeze_step": FREEZE, "var_update_scaler": 3, "local_step_scaler": 10, "local_step_clipper": 4}
CASES = [
    (2, "OneBitAdam", {"freeze_step": FREEZE, "eps": 0.01, "weight_decay": 0.01}),
    (3, "OneBitAdam", {"freeze_step": FREEZE, "eps": 0.01, "betas": [0.8, 0.95]}),
    (2, "OneBitLamb", {"freeze_step": FREEZE, "eps": 0.01, "weight_decay": 0.01, **LIMITS}),
    (3, "OneBitLamb", {"freeze_step": FREEZE, "eps": 0.01}),
    (2, "ZeroOneAdam", {"eps": 0.01, "weight_decay": 0.01, **INTERVALS}),
    (3, "ZeroOneAdam", {"eps": 0.01, **INTERVALS, "local_step_clipper": 1}),
]


def rank_of(cases):
    """What this rank sees of cases with its number of ranks: {"draw", "closest", "after": {steps: [numbers of each parameter]}}."""
    import numpy
    import torch
    import deepspeed
    from deepspeed.runtime.comm import compressed
    from deepspeed.runtime.fp16.onebit import OnebitAdam, OnebitLamb, ZeroOneAdam

    torch.set_num_threads(1)
    rank, closest = int(os.environ["RANK"]), torch.ones(1)

    class Packer:  # the highest bit is the first number's, 1 is plus
        def load(self):
            return self

        def packbits(self, numbers, count, rank):
            sizes = numbers.abs().double()
            if sizes.any():
                closest[0] = min(closest[0], sizes[sizes != 0].min() / sizes.square().mean().sqrt())
            return torch.from_numpy(numpy.packbits((numbers >= 0).numpy().reshape(-1)))

        def unpackbits(self, bits, count, rank):
            return torch.from_numpy(numpy.unpackbits(bits.numpy()).astype(numpy.float32) * 2 - 1)

    class Engine:
        mpu, local_rank, enable_backward_allreduce = None, rank, True

    def run(kind, params, draw):
        engine, after = Engine(), {}
        closest.fill_(1)
        parameters = [torch.nn.Parameter(torch.zeros(shape)) for _, shape in PARAMETERS]
        optimizer = kinds[kind](parameters, deepspeed=engine, comm_backend_name="compressed", **params)
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 + step % 3)
            for index, parameter in enumerate(parameters):
                generator = numpy.random.RandomState(draw + 10000 * step + 1000 * rank + index)
                words = generator.randint(0, 2**32, size=parameter.numel(), dtype=numpy.uint32)
                numbers = words.astype(numpy.float32) / numpy.float32(2**31) - numpy.float32(1)
                numbers[0] = 0
                parameter.grad = torch.from_numpy(numbers).view(parameter.shape)
                if engine.enable_backward_allreduce:
                    torch.distributed.all_reduce(parameter.grad)
                    parameter.grad.div_(dist.get_world_size())
            optimizer.step()
            if step + 1 in KEPT:
                after[str(step + 1)] = [kept(one.detach().flatten().tolist(), step + 1) for one in parameters]
        torch.distributed.all_reduce(closest, torch.distributed.ReduceOp.MIN)
        return {"draw": draw, "closest": float(f"{closest.item():.2g}"), "after": after}

    kinds = {"OneBitAdam": OnebitAdam, "OneBitLamb": OnebitLamb, "ZeroOneAdam": ZeroOneAdam}
    compressed.PackbitsBuilder, dist = Packer, compressed.dist
    gather = dist.all_gather  # of scalars; Gloo wants the shapes to be equal
    dist.all_gather = lambda to, one, group: gather(to, one.reshape(to[0].shape), group=group)
    deepspeed.init_distributed(dist_backend="gloo")
    results = []
    for kind, params in cases:
        result = {"draw": 0, "closest": 0}
        while result["closest"] < CLOSEST:
            result = run(kind, params, result["draw"] + 1000000)
        results.append(result)
    return results


def kept(numbers, steps):
    every = 1 if steps == STEPS else max(1, len(numbers) // SAMPLES)
    return [round(number, 7) for number in numbers[::every]]


def run(world, cases, output):
    """What rank 0 sees of them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(world):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_SIZE=str(world),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu")
        command = [sys.executable, os.path.abspath(__file__), json.dumps(cases), output if rank == 0 else os.devnull]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
    if any([process.wait() for process in ranks]):
        raise RuntimeError(f"a rank of {world} failed")
    with open(output, encoding="utf-8") as file:
        return json.load(file)


def main():
    if len(sys.argv) == 3:
        with open(sys.argv[2], "w", encoding="utf-8") as out:
            json.dump(rank_of(json.loads(sys.argv[1])), out)
        return
    cases = []
    with tempfile.TemporaryDirectory(prefix="dsj-one-bit-") as folder:
        for world in sorted({case[0] for case in CASES}):
            chosen = [case[1:] for case in CASES if case[0] == world]
            for (kind, params), result in zip(chosen, run(world, chosen, os.path.join(folder, "out"))):
                print(f"{kind}, {world} ranks: draw {result['draw']}, closest {result['closest']}", file=sys.stderr)
                cases.append({"world": world, "type": kind, "params": params, **result})
    fixture = {"deepspeed": "0.18.9", "parameters": [name for name, _ in PARAMETERS], "samples": SAMPLES, "cases": cases}
    with open(os.path.join(os.path.dirname(HERE), "fixtures", "one_bit.oracle.json"), "w", encoding="utf-8") as out:
        json.dump(fixture, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
