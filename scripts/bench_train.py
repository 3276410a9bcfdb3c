#!/usr/bin/env python3
"""Tokens per second, peak memory per rank and time to the first step of `dsj run`, beside a plain libtorch loop.

Usage: bench_train.py [--bin build/bin] [--steps 8] [--rounds 2] [--stages 2,3] [--rows fixed|alpaca] [--micro 4]
                      [--precisions fp32,bf16]
The 24 M-parameter Qwen2 shape (hidden 384, 6 layers, vocabulary 8192), fp32. Both sides in turn, on the same weights and
rows, so the ratio is what counts. With --precisions each stage runs in each of them, in turn, beside its own run in fp32:
tokens/s and CPU seconds of all ranks, start included. The plain loop is left out then. DSJ_NATIVE_BF16=0 stands for a CPU
without bf16 units. Fixed: rows of 256 tokens; 1 rank with 2 threads and 2 ranks with 1 thread. Alpaca: rows
with alpaca's lengths and masked prompts, 2 ranks; the plain loop pads to the longest row of a micro-batch. Tokens are those
of the rows, without padding. --micro takes several: 2,4,8.
"""
import argparse
import itertools
import json
import os
import resource
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


def ours(options, work, world, threads, micro, stage, precision="fp32"):
    output = os.path.join(work, "run")
    shutil.rmtree(output, ignore_errors=True)
    config = os.path.join(work, "ds_config.json")
    with open(config, "w", encoding="utf-8") as out:
        json.dump({"zero_optimization": {"stage": stage}, "gradient_clipping": 1.0, "bf16": {"enabled": precision == "bf16"},
                   "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0}}}, out)
    command = [os.path.join(options.bin, "dsj"), "run", f"--nproc_per_node={world}", "--deepspeed", config,
               "--model_name_or_path", os.path.join(work, "model"), "--data_path", os.path.join(work, "data.json"),
               "--output_dir", output, "--max_steps", str(options.steps), "--per_device_train_batch_size", str(micro),
               "--shuffle", "False", "--save_strategy", "no", "--learning_rate", "1e-3"]
    if precision == "bf16":
        command += ["--bf16", "True"]
    first, _ = lines_of(command, work, os.environ | {"OMP_NUM_THREADS": str(threads)},
                        lambda line: line if line.startswith("step ") else None)
    with open(os.path.join(output, "metrics.jsonl"), encoding="utf-8") as metrics:
        return first, [json.loads(line) for line in metrics]


def figures(runs):
    """Of several runs: median tokens per second after the warm-up, peak bytes, the quickest first step, the losses."""
    speeds = [step["tokens_per_second"] for _, steps in runs for step in steps[WARM_UP:]]
    return {"speed": statistics.median(speeds), "rss": max(step["host_rss_bytes"] for _, steps in runs for step in steps),
            "first": min(first for first, _ in runs), "losses": [step["loss"] for step in runs[0][1]]}


def cpu_seconds(run):
    """(result of run(), CPU seconds of the processes that it started and waited for)."""
    def spent():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime
    before = spent()
    return run(), spent() - before


def beside_fp32(options, work, worlds):
    """Each world, micro-batch and stage in each precision, in turn."""
    precisions = options.precisions.split(",")
    if precisions[0] != "fp32" or set(precisions) - {"fp32", "bf16"}:
        sys.exit(f"bench_train: --precisions is {options.precisions!r}, expected fp32,bf16: fp32 is what is compared with")
    print(f"load average {os.getloadavg()[0]:.1f}\n{'':52} {'tokens/s':>9} {'over fp32':>10} {'CPU s':>8} {'over fp32':>10} "
          f"{'loss, last step':>16}")
    for (world, threads), micro, stage in itertools.product(worlds, options.micro, options.stages):
        runs = {precision: [] for precision in precisions}
        for _ in range(options.rounds):
            for precision in precisions:
                runs[precision].append(cpu_seconds(lambda: ours(options, work, world, threads, micro, stage, precision)))
        found = {precision: figures([run for run, _ in both]) for precision, both in runs.items()}
        cpu = {precision: statistics.median(seconds for _, seconds in both) for precision, both in runs.items()}
        for precision in precisions:
            print(f"{world} rank x {threads} threads, micro-batch {micro}, stage {stage}, {precision:4}"
                  f"{found[precision]['speed']:17.0f} {found[precision]['speed'] / found['fp32']['speed']:10.2f} "
                  f"{cpu[precision]:8.1f} {cpu['fp32'] / cpu[precision]:10.2f} {found[precision]['losses'][-1]:16.6f}", flush=True)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--stages", default="2,3")
    parser.add_argument("--rows", choices=("fixed", "alpaca"), default="fixed")
    parser.add_argument("--micro", default="4")
    parser.add_argument("--precisions", default="")
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    options.micro, options.stages = ([int(one) for one in several.split(",")] for several in (options.micro, options.stages))
    work = tempfile.mkdtemp(prefix="dsj-bench-")
    subprocess.run([os.path.join(options.bin, "bench_train_loop"), "prepare", work, options.rows], check=True)
    worlds = ((1, 2), (2, 1)) if options.rows == "fixed" and not options.precisions else ((2, 1),)
    if options.precisions:
        beside_fp32(options, work, worlds)
        shutil.rmtree(work, ignore_errors=True)
        return 0
    print(f"{'':48} {'tokens/s':>9} {'ratio':>6} {'peak MiB/rank':>14} {'ratio':>6} {'first step s':>13} {'loss, last step':>16}")
    for (world, threads), micro in itertools.product(worlds, options.micro):
        sides = {"plain libtorch loop": lambda: plain(options, work, world, threads, micro)}
        for stage in options.stages if world > 1 else [0]:
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
