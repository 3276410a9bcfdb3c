#!/usr/bin/env python3
"""Runs Python DeepSpeed step by step and records what scripts/golden_table.py compares with.

Usage: deepspeed_run.py CASES.json --models DIRECTORY -o DIRECTORY [--only REGEX]
CASES.json: {"NAME": {"model": "tiny-qwen2", "data": "data.json", "world": 2, "ds_config": {...}}, ...}; with "draw": N each weight
first moves to the next fp32, up or down by that seed (deepspeed_spread.py); with "first_scale" torch_autocast's scaler begins at
it, and with "growth" doubles after so many steps, for which DeepSpeed has no keys. MODELS holds the Hugging Face directories and the data files ({"samples": [{"input_ids", "labels"}]}). NAME is model_precision_zSTAGE_wWORLD_what.
One JSON file per case is written to DIRECTORY/deepspeed_VERSION (of the DeepSpeed that runs), MODELS is linked as DIRECTORY/models.
With the section curriculum_learning rows are cut to the length that DeepSpeed's schedule names, recorded as "seqlen".
Sample of optimizer step s, micro-step a, rank r, row j: (((s * accum + a) * world + r) * micro + j) mod rows.
"""
import argparse
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import socket
import subprocess
import sys
import traceback

STEPS = 20
SAMPLES = 8  # recorded elements per tensor, evenly spread


def loss_scale(engine, optimizer):
    """The scale of the next step. In fp16 by torch_autocast it is torch's GradScaler's."""
    grad_scaler = getattr(engine, "torch_autocast_z0_gradscaler", None) or getattr(optimizer, "torch_autocast_gradscaler", None)
    if grad_scaler is not None:
        return grad_scaler.get_scale()
    return float(getattr(optimizer, "loss_scale", getattr(optimizer, "cur_scale", 1.0)) or 1.0)


def worker(case, models):
    import torch
    import torch.distributed as dist
    import deepspeed
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # plain Gloo: no compiler at run time
    from deepspeed.accelerator import get_accelerator
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    config = case["ds_config"]
    patched = []
    if config.get("fp16", {}).get("enabled") is True:
        type(get_accelerator()).is_fp16_supported = lambda self: True
        patched.append("is_fp16_supported->True")
    if case.get("first_scale"):
        numbers = {"init_scale": case["first_scale"], **({"growth_interval": case["growth"]} if "growth" in case else {})}
        torch.amp.GradScaler = functools.partial(torch.amp.GradScaler, **numbers)
        patched += [f"GradScaler {name}->{number}" for name, number in numbers.items()]
    deepspeed.init_distributed(dist_backend="gloo")
    path = os.path.join(models, case["model"])
    dtype = torch.float32
    shape = AutoConfig.from_pretrained(path)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop", "attention_dropout"):
        if hasattr(shape, name):
            setattr(shape, name, 0.0)
    model = AutoModelForCausalLM.from_pretrained(path, config=shape, dtype=dtype, attn_implementation="eager")
    if case.get("draw"):
        generator = torch.Generator().manual_seed(case["draw"])
        with torch.no_grad():
            for parameter in model.parameters():
                up = torch.randint(0, 2, parameter.shape, generator=generator).mul_(2).sub_(1)
                parameter.mul_(1 + up * 2.0 ** -24 * 1.5)
    buffers = {name: buffer.dtype for name, buffer in model.named_buffers()}
    names = [name for name, _ in model.named_parameters()]
    engine, optimizer, _, scheduler = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for name, buffer in engine.module.named_buffers():  # rotary tables as transformers makes them
        if buffer.dtype != buffers[name]:
            raise RuntimeError(f"{name} became {buffer.dtype}: record it")
    rows = json.load(open(os.path.join(models, case["data"]), encoding="utf-8"))
    rows = rows["samples"] if isinstance(rows, dict) else rows
    micro, accum = engine.train_micro_batch_size_per_gpu(), engine.gradient_accumulation_steps()
    engine.train()
    steps, curriculum = [], getattr(engine, "curriculum_scheduler_legacy", None)
    for s in range(STEPS):
        loss_sum, scale, skipped = 0.0, loss_scale(engine, optimizer), engine.skipped_steps
        lr = engine.get_lr()[0]
        length = curriculum.update_difficulty(engine.global_steps + 1) if curriculum else None
        for a in range(accum):
            first = ((s * accum + a) * world + rank) * micro
            batch = [rows[(first + j) % len(rows)] for j in range(micro)]
            ids = torch.tensor([row["input_ids"][:length] for row in batch])
            labels = torch.tensor([row["labels"][:length] for row in batch])
            logits = engine(input_ids=ids, use_cache=False).logits.float()
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)),
                                                     labels[:, 1:].reshape(-1), ignore_index=-100)
            loss_sum += loss.item()
            engine.backward(loss)
            engine.step()
        total = torch.tensor([loss_sum / accum], dtype=torch.float64)
        dist.all_reduce(total)
        norm = engine.get_global_grad_norm()
        steps.append({"step": s, "loss": total.item() / world, "lr": lr, "lr_next": engine.get_lr()[0],
                      "grad_norm": None if norm is None else float(norm), "loss_scale": scale,
                      "loss_scale_next": loss_scale(engine, optimizer), "skipped": engine.skipped_steps - skipped,
                      **({"seqlen": length} if curriculum else {})})
    stats, digest = {}, hashlib.sha256()
    from deepspeed.utils import safe_get_full_fp32_param
    for (name, parameter) in zip(names, engine.module.parameters()):
        full = safe_get_full_fp32_param(parameter)
        full = (parameter.detach() if full is None else full).float().flatten()
        every = max(1, full.numel() // SAMPLES)
        stats[name] = {"every": every, "sample": full[::every][:SAMPLES].tolist()}
        digest.update(full.contiguous().numpy().tobytes())
    return {"model": case["model"], "data": case["data"], "world": world, "patched": patched, "ds_config": config,
            "micro": micro, "accum": accum, "optimizer_classes": [type(optimizer).__name__],
            "scheduler_class": type(scheduler).__name__ if scheduler else None, "steps": steps,
            "final_stats": stats, "final_sha256": digest.hexdigest(), "status": "ok"}


def run_worker(options):
    case = json.load(open(options.case, encoding="utf-8"))
    try:
        result = worker(case, options.models)
    except Exception as error:  # what DeepSpeed refuses is a result, too
        traceback.print_exc()
        result = {"model": case["model"], "data": case["data"], "world": case["world"], "patched": [],
                  "ds_config": case["ds_config"], "status": "error",
                  "error": {"type": type(error).__name__, "first_line": (str(error).splitlines() or [""])[0]}}
    if os.environ["RANK"] == "0":
        with open(options.output, "w", encoding="utf-8") as out:
            json.dump(result, out)
    os._exit(0)


def launch(name, case, options, folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    case_path, output = os.path.join(folder, "." + name), os.path.join(folder, name + ".json")
    with open(case_path, "w", encoding="utf-8") as out:
        json.dump(case, out)
    log = open(os.path.join(folder, "." + name + ".log"), "w", encoding="utf-8")
    ranks = []
    for rank in range(case["world"]):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case["world"]), OMP_NUM_THREADS="1",
                   LOCAL_SIZE=str(case["world"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu",
                   CUDA_VISIBLE_DEVICES="", TOKENIZERS_PARALLELISM="false")
        ranks.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), case_path, "--models", options.models,
                                       "-o", output, "--worker"], env=env, stdout=log, stderr=log, cwd=folder))
    for rank in ranks:
        try:
            rank.wait(900)
        except subprocess.TimeoutExpired:
            rank.kill()
    os.unlink(case_path)
    result = json.load(open(output, encoding="utf-8")) if os.path.exists(output) else {"status": "no result"}
    last = result.get("steps", [{}])[-1]
    print(f"{name:44} {result['status']:6} {result.get('error', {}).get('first_line', '')[:90]} loss {last.get('loss')}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", metavar="CASES.json")
    parser.add_argument("--models", required=True)
    parser.add_argument("-o", dest="output", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.models = os.path.abspath(options.models)
    if options.worker:
        return run_worker(options)
    folder = os.path.join(os.path.abspath(options.output), "deepspeed_" + importlib.metadata.version("deepspeed"))
    os.makedirs(folder, exist_ok=True)
    link = os.path.join(os.path.abspath(options.output), "models")
    if not os.path.exists(link):
        os.symlink(options.models, link)
    for name, case in json.load(open(options.case, encoding="utf-8")).items():
        if re.search(options.only, name) and not os.path.exists(os.path.join(folder, name + ".json")):
            launch(name, case, options, folder)


if __name__ == "__main__":
    main()
