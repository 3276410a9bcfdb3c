#!/usr/bin/env python3
"""Tokens per second, peak memory per rank and time to the first step of `dsj run`, beside a plain libtorch loop.

Usage: bench_train.py [--bin build/bin] [--steps 8] [--rounds 2] [--stages 2,3] [--rows fixed|alpaca] [--micro 4]
The 24 M-parameter Qwen2 shape (hidden 384, 6 layers, vocabulary 8192), fp32. Both sides in turn, on the same weights and
rows, so the ratio is what counts. Fixed: rows of 256 tokens; 1 rank with 2 threads and 2 ranks with 1 thread. Alpaca: rows
with alpaca's lengths and masked prompts, 2 ranks; the plain loop pads to the longest row of a micro-batch. Tokens are those
of the rows, without padding. --micro takes several: 2,4,8.
"""
import argparse
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

WARM_UP = 2


def lines_of(command, work, environment, parse):
    """Runs a command; returns (seconds from launch to its first step, [step objects])."""
    start, first, steps = time.time(), None, []
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=work, env=environment, text=True)
    for line in child.stdout:
        step = parse(line)
        if step is not None:
            first = first or time.time() - start
            steps.append(step)
    if child.wait() != 0 or not steps:
        sys.exit(f"bench_train: {' '.join(command)} ended with {child.returncode}")
    return first, steps


def plain(options, work, world, threads, micro):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [os.path.join(options.bin, "bench_train_loop"), "run", work, str(options.steps), str(micro)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "WORLD_SIZE": str(world), "MASTER_PORT": str(port)}
    others = [subprocess.Popen(command, env=environment | {"RANK": str(rank)}, stdout=subprocess.DEVNULL)
              for rank in range(1, world)]
    result = lines_of(command, work, environment | {"RANK": "0"}, json.loads)
    for other in others:
        other.wait()
    return result


def ours(options, work, world, threads, micro, stage):
    output = os.path.join(work, "run")
    shutil.rmtree(output, ignore_errors=True)
    config = os.path.join(work, "ds_config.json")
    with open(config, "w", encoding="utf-8") as out:
        json.dump({"zero_optimization": {"stage": stage}, "gradient_clipping": 1.0,
                   "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0}}}, out)
    command = [os.path.join(options.bin, "dsj"), "run", f"--nproc_per_node={world}", "--deepspeed", config,
               "--model_name_or_path", os.path.join(work, "model"), "--data_path", os.path.join(work, "data.json"),
               "--output_dir", output, "--max_steps", str(options.steps), "--per_device_train_batch_size", str(micro),
               "--shuffle", "False", "--save_strategy", "no", "--learning_rate", "1e-3"]
    first, _ = lines_of(command, work, os.environ | {"OMP_NUM_THREADS": str(threads)},
                        lambda line: line if line.startswith("step ") else None)
    with open(os.path.join(output, "metrics.jsonl"), encoding="utf-8") as metrics:
        return first, [json.loads(line) for line in metrics]


def figures(runs):
    """Of several runs: median tokens per second after the warm-up, peak bytes, the quickest first step, the losses."""
    speeds = [step["tokens_per_second"] for _, steps in runs for step in steps[WARM_UP:]]
    return {"speed": statistics.median(speeds), "rss": max(step["host_rss_bytes"] for _, steps in runs for step in steps),
            "first": min(first for first, _ in runs), "losses": [step["loss"] for step in runs[0][1]]}


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--stages", default="2,3")
    parser.add_argument("--rows", choices=("fixed", "alpaca"), default="fixed")
    parser.add_argument("--micro", default="4")
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    work = tempfile.mkdtemp(prefix="dsj-bench-")
    subprocess.run([os.path.join(options.bin, "bench_train_loop"), "prepare", work, options.rows], check=True)
    print(f"{'':48} {'tokens/s':>9} {'ratio':>6} {'peak MiB/rank':>14} {'ratio':>6} {'first step s':>13} {'loss, last step':>16}")
    worlds = ((1, 2), (2, 1)) if options.rows == "fixed" else ((2, 1),)
    for (world, threads), micro in itertools.product(worlds, [int(m) for m in options.micro.split(",")]):
        sides = {"plain libtorch loop": lambda: plain(options, work, world, threads, micro)}
        for stage in [int(s) for s in options.stages.split(",")] if world > 1 else [0]:
            sides[f"dsj run, stage {stage}"] = lambda stage=stage: ours(options, work, world, threads, micro, stage)
        runs = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, side in sides.items():
                runs[name].append(side())
        reference = figures(runs["plain libtorch loop"])
        for name in sides:
            found = figures(runs[name])
            print(f"{world} rank x {threads} threads, micro-batch {micro}, {name:19} {found['speed']:9.0f} "
                  f"{found['speed'] / reference['speed']:6.2f} "
                  f"{found['rss'] / 2**20:14.0f} {found['rss'] / reference['rss']:6.2f} {found['first']:13.1f} "
                  f"{found['losses'][-1]:16.6f}", flush=True)
            apart = max(abs(a - b) / b for a, b in zip(found["losses"], reference["losses"]))
            if apart > 1e-4:
                sys.exit(f"bench_train: the two sides do not train the same: losses are {apart:.1e} apart")
    shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
