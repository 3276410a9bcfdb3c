#!/usr/bin/env python3
"""Has Python DeepSpeed go on from checkpoints that we exported: the next losses must be the recorded ones.

Usage: $(tests/oracle/deepspeed_venv.sh) tests/oracle/check_universal.py GOLDEN [--bin build/bin] [--only REGEX]
GOLDEN has models/ and ds_checkpoints/NAME/{record.json, global_step3}: checkpoints of DeepSpeed after three steps, and the
losses of the three steps that followed. Each is imported (`dsj checkpoint import`), exported (`export --to universal`) and
loaded by DeepSpeed with checkpoint.load_universal at stages 1 to 3 and at one and two ranks; `export --to fp32 --format bin`
is loaded by torch. The same with tests/fixtures/ds-frozen, whose frozen parameters are in no universal checkpoint: they are
those of the model that DeepSpeed is given. Exit 1: a loss is farther than 1e-5 (16 bit: 3e-4) from the recorded one, or a
weight differs.
"""
import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile

STEPS = range(3, 6)
FROZEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fixtures", "ds-frozen")


def worker(case):
    """One rank: DeepSpeed loads, trains three steps, rank 0 prints the losses."""
    import torch
    import torch.distributed as dist
    import deepspeed
    from transformers import AutoModelForCausalLM

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # plain Gloo: no compiler at run time
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    deepspeed.init_distributed(dist_backend="gloo")
    model = AutoModelForCausalLM.from_pretrained(case["model"], dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():  # what is not loaded shows
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not name.startswith(tuple(case["frozen"])))
            if parameter.requires_grad:
                parameter.zero_()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=trained, config=case["ds_config"])
    path, _ = engine.load_checkpoint(case["checkpoint"])
    if path is None or engine.global_steps != STEPS[0]:
        raise RuntimeError(f"nothing was loaded: {path}, step {engine.global_steps}")
    with open(case["data"], encoding="utf-8") as file:
        data = json.load(file)
        rows = data["samples"] if "samples" in data else data["rows"]
    micro, accum = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    engine.train()
    for step in STEPS:
        total = 0.0
        for turn in range(accum):
            first = ((step * accum + turn) * world + rank) * micro
            batch = [rows[(first + j) % len(rows)] for j in range(micro)]
            ids = torch.tensor([row["input_ids"] for row in batch])
            labels = torch.tensor([row["labels"] for row in batch])
            logits = engine(input_ids=ids, use_cache=False).logits.float()
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)),
                                                     labels[:, 1:].reshape(-1), ignore_index=-100)
            total += loss.item() / accum
            engine.backward(loss)
            engine.step()
        mean = torch.tensor([total / world], dtype=torch.float64)
        dist.all_reduce(mean)
        if rank == 0:
            print(f"loss {step} {mean.item():.9f} lr {engine.get_lr()[0]:.9g}", flush=True)


def goes_on(case, world):
    """The losses of DeepSpeed at `world` ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(world):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), DS_ACCELERATOR="cpu")
        ranks.append(subprocess.Popen([sys.executable, __file__, "--worker", json.dumps(case)], env=environment,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("DeepSpeed failed:\n" + outputs[0][-4000:])
    return {int(step): float(loss) for step, loss in re.findall(r"^loss (\d+) (\S+)", outputs[0], re.MULTILINE)}


def same_weights(path, checkpoint):
    """Whether torch.load gives the weights that the safetensors export has."""
    import torch
    from safetensors.torch import load_file
    ours, other = torch.load(path, weights_only=True, mmap=True), load_file(checkpoint)
    return list(ours) != [] and ours.keys() == other.keys() and all(torch.equal(ours[name], other[name]) for name in ours)


def dsj(program, *words):
    done = subprocess.run([program, "checkpoint", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"dsj checkpoint {' '.join(words)}: {done.stderr}")


def near(name, case, record, stage, world, limit):
    """Whether DeepSpeed's next losses are the recorded ones. record: ds_config, micro, rows of a step, losses."""
    config = dict(record["ds_config"], train_micro_batch_size_per_gpu=record["micro"],
                  gradient_accumulation_steps=record["rows"] // (record["micro"] * world),
                  zero_optimization={"stage": stage}, checkpoint={"load_universal": True})
    losses = goes_on({**case, "ds_config": config}, world)
    far = max(abs(losses[step] / record["losses"][step] - 1) for step in STEPS)
    print(f"{name}: DeepSpeed at stage {stage}, {world} rank(s): next losses within {far:.1e} of {limit:.0e}", flush=True)
    return far <= limit


def check(name, golden, program, room):
    with open(os.path.join(golden, "ds_checkpoints", name, "record.json"), encoding="utf-8") as file:
        record = json.load(file)
    model = os.path.join(golden, "models", record["model"])
    out = {form: os.path.join(room, name, form) for form in ("run", "universal", "safetensors", "bin")}
    dsj(program, "import", os.path.join(golden, "ds_checkpoints", name, "global_step3"), out["run"])
    dsj(program, "export", out["run"], out["universal"], "--to", "universal", "--model", model)
    for form in ("safetensors", "bin"):
        dsj(program, "export", out["run"], out[form], "--to", "fp32", "--format", form, "--model", model)
    good = same_weights(out["bin"] + "/pytorch_model.bin", out["safetensors"] + "/model.safetensors")
    print(f"{name}: torch.load of the exported weights {'equal' if good else 'DIFFERENT'}", flush=True)
    case = {"model": model, "data": os.path.join(golden, "models", record["data"]), "checkpoint": out["universal"], "frozen": []}
    known = {"ds_config": record["ds_config"], "micro": record["micro"],
             "rows": record["micro"] * record["accum"] * record["world"],
             "losses": [step["loss"] for step in record["steps"]]}
    ways = [(stage, world) for stage in (1, 2, 3) for world in (1, 2)]
    return all([near(name, case, known, *way, 3e-4 if "bf16" in name else 1e-5) for way in ways] + [good])


def check_frozen(program, room):
    with open(os.path.join(FROZEN, "record.json"), encoding="utf-8") as file:
        record = json.load(file)
    good = []
    for saved, ways in (("2", ((2, 2), (3, 1))), ("3", ((3, 2), (1, 1)))):
        name, model = "frozen_z" + saved, os.path.join(FROZEN, "model")
        run, universal = os.path.join(room, name, "run"), os.path.join(room, name, "universal")
        dsj(program, "import", os.path.join(FROZEN, "z" + saved), run)
        dsj(program, "export", run, universal, "--to", "universal", "--model", model)
        case = {"model": model, "data": os.path.join(FROZEN, "record.json"), "checkpoint": universal,
                "frozen": record["frozen"]}
        config = record["ds_config"][saved]
        known = {"ds_config": config, "micro": config["train_micro_batch_size_per_gpu"], "rows": 4,
                 "losses": record["losses"][saved]}
        good += [near(name, case, known, *way, 1e-5) for way in ways]
    return all(good)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", nargs="?")
    parser.add_argument("--bin", default="build/bin")
    parser.add_argument("--only", default=r"^(frozen|qwen2_(fp32_z2_w2|bf16_z2_w2))$")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.worker:
        worker(json.loads(words.worker))
        return 0
    names = [name for name in sorted(os.listdir(os.path.join(words.golden, "ds_checkpoints"))) if re.search(words.only, name)]
    with tempfile.TemporaryDirectory() as room:
        program = os.path.join(words.bin, "dsj")
        good = [check(name, words.golden, program, room) for name in names]
        if re.search(words.only, "frozen"):
            good.append(check_frozen(program, room))
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
