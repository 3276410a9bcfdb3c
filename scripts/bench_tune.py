#!/usr/bin/env python3
"""Tests whether `dsj tune` finds a configuration as fast as the best of the whole grid, with at most half of the trials.

Usage: bench_tune.py [--bin build/bin] [--largest 8] [--steps 4] [--tokens 256] [--again 3]
The 24 M-parameter shape of bench_train.py, fp32, 2 ranks of one thread, ZeRO stages 0 to 3, micro-batches up to --largest.
Runs `dsj tune --all`, which tries everything, then `--tuner model_based` from scratch. Then runs what each found --again
times in turn, so that both are measured under the same load. Exit 1 if it took more than half the trials or is slower by
more than 5 %, DeepSpeed's own threshold for a gain. Results of a busy machine mean little, so the load is printed.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

FIRST = 2  # the first step reads and allocates


def tune(options, work, name, more):
    """Returns (folder of the results, number of trials)."""
    results = os.path.join(work, name)
    command = [os.path.join(options.bin, "dsj"), "tune", os.path.join(work, "job.yaml"), "--results", results, "--experiments",
               results + "-exps", "--first-step", str(FIRST), "--last-step", str(options.steps), "--max-micro-batch",
               str(options.largest), *more]
    print("$ " + " ".join(command), flush=True)
    subprocess.run(command, check=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    return results, sum(os.path.exists(os.path.join(results, one, "metrics.json")) for one in os.listdir(results))


def best(results):
    """The ds_config that a search found, with the schedule of a short run."""
    with open(os.path.join(results, "job_optimal.yaml"), encoding="utf-8") as file:
        return json.load(file)


def speed(options, work, job):
    """Tokens per second of a short run of the job."""
    output = os.path.join(work, "again")
    shutil.rmtree(output, ignore_errors=True)
    job["spec"]["training"].update({"outputDir": output, "maxSteps": options.steps, "saveStrategy": "no"})
    path = os.path.join(work, "again.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job, file)
    subprocess.run([os.path.join(options.bin, "dsj"), "run", path], check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, OMP_NUM_THREADS="1"))
    with open(os.path.join(output, "metrics.jsonl"), encoding="utf-8") as file:
        steps = [step for step in map(json.loads, file) if step["step"] >= FIRST]
    return sum(step["tokens"] for step in steps) / sum(step["step_seconds"] for step in steps)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--largest", type=int, default=8)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--again", type=int, default=3)
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    work = tempfile.mkdtemp(prefix="dsj-bench-tune-")
    try:
        subprocess.run([os.path.join(options.bin, "dsj-make-model"), "--output", os.path.join(work, "model"), "--family",
                        "qwen2", "--hidden", "384", "--layers", "6", "--vocabulary", "8192", "--seed", "1"], check=True,
                       stdout=subprocess.DEVNULL)
        rows = [[(row * 7919 + i * 31) % 8192 for i in range(options.tokens)] for row in range(256)]
        with open(os.path.join(work, "data.json"), "w", encoding="utf-8") as file:
            json.dump([{"input_ids": row, "labels": row} for row in rows], file)
        job = {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {"name": "bench"},
               "spec": {"deepspeed": {"config": {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1,
                                                 "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
                                                 "zero_optimization": {"stage": 2}}},
                        "workers": {"slotsPerWorker": 2},
                        "training": {"modelNameOrPath": "model", "dataPath": "data.json", "outputDir": "out",
                                     "maxSteps": 1000, "maxSeqLength": options.tokens}}}
        with open(os.path.join(work, "job.yaml"), "w", encoding="utf-8") as file:
            json.dump(job, file)
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
        grid, whole = tune(options, work, "grid", ["--all"])
        found, trials = tune(options, work, "found", ["--tuner", "model_based", "--early-stopping", "4"])
        speeds = {grid: [], found: []}
        for _ in range(options.again):
            for results, list_of in speeds.items():
                list_of.append(speed(options, work, best(results)))
        of_grid, of_found = (statistics.median(speeds[results]) for results in (grid, found))
        print(f"load average {os.getloadavg()[0]:.1f}")
        print(f"grid: {whole} trials, its best {of_grid:.0f} tokens/s; dsj tune: {trials} trials, its best {of_found:.0f} "
              f"tokens/s, {of_found / of_grid:.3f} of the grid's")
        return 0 if 2 * trials <= whole and of_found >= 0.95 * of_grid else 1
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
