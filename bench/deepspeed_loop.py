#!/usr/bin/env python3
"""Trains with Python DeepSpeed what `bench_train_loop run` trains with plain libtorch: the same arguments and environment, the
same lines of output. scripts/bench_train.py --deepspeed starts it.

Usage: deepspeed_loop.py DIR STEPS MICRO --stage N [--bf16]     with RANK, WORLD_SIZE, MASTER_PORT and OMP_NUM_THREADS

The model is transformers', with the attention that it chooses; rows are padded to the longest of a micro-batch. The optimizer is
what DeepSpeed makes of "AdamW". Its kernels for CPUs are compiled at the first use.
"""
import argparse
import json
import os
import resource
import time


def padded(torch, rows):
    longest = max(len(row["input_ids"]) for row in rows)

    def rectangle(values, pad):
        return torch.tensor([value + [pad] * (longest - len(value)) for value in values])
    return {"input_ids": rectangle([row["input_ids"] for row in rows], 0), "labels": rectangle([row["labels"] for row in rows], -100),
            "attention_mask": rectangle([[1] * len(row["input_ids"]) for row in rows], 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("steps", type=int)
    parser.add_argument("micro", type=int)
    parser.add_argument("--stage", type=int, required=True)
    parser.add_argument("--bf16", action="store_true")
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "LOCAL_RANK": str(rank), "LOCAL_SIZE": str(world), "DS_ACCELERATOR": "cpu"}
    import torch
    import deepspeed
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    deepspeed.init_distributed(dist_backend="gloo")
    model = AutoModelForCausalLM.from_pretrained(os.path.join(options.directory, "model"), dtype=torch.float32)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_micro_batch_size_per_gpu": options.micro, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
        "zero_optimization": {"stage": options.stage}, "bf16": {"enabled": options.bf16},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0}}})
    with open(os.path.join(options.directory, "data.json"), encoding="utf-8") as file:
        rows = json.load(file)["samples"]

    def batch(step, of_rank):
        first = (step * world + of_rank) * options.micro
        return [rows[(first + i) % len(rows)] for i in range(options.micro)]
    engine.train()
    for step in range(options.steps):
        begin = time.perf_counter()
        loss = engine(**padded(torch, batch(step, rank)), use_cache=False).loss
        engine.backward(loss)
        engine.step()
        mean = loss.detach().float().clone()
        torch.distributed.all_reduce(mean)
        seconds = time.perf_counter() - begin
        if rank == 0:
            tokens = sum(len(row["input_ids"]) for of_rank in range(world) for row in batch(step, of_rank))
            print(json.dumps({"step": step + 1, "loss": mean.item() / world, "tokens_per_second": tokens / seconds,
                              "host_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}), flush=True)
    torch.distributed.barrier()
    os._exit(0)  # DeepSpeed leaves threads


if __name__ == "__main__":
    main()
