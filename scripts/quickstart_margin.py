#!/usr/bin/env python3
"""Trains the quickstart with 24 seeds over kernel tables, bf16 products, precisions and world sizes, and prints how many
held-out questions of each task are answered correctly, to see whether rounding matters. Exit 1 if a run answers less
than 95 %.

Usage: quickstart_margin.py BUILD [--write docs/reports/quickstart_margin.md] [--runs 24] [--work DIRECTORY]
Settings that this processor lacks (the avx512 table, bf16 products in hardware) are left out, and the page says so.
"""
import argparse
import datetime
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time

TASKS = ("sums", "reversals", "lookups")
GOAL = 0.95
MET = 5  # minimum number of runs with each value
ROWS_PER_STEP = 16  # of the job: two ranks with eight each
TABLES = {"avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"}, "avx2": {"avx2", "fma"}, "baseline": set()}
PRODUCTS = {"bf16, native": {"avx512_bf16"}, "bf16, emulated": set(), "fp32": set()}


def processor():
    """(its name, its flags)"""
    name, flags = platform.machine(), set()
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
    return name, flags


def settings(flags, runs):
    """The settings of each run, in turn: (table, product, ranks), as far as this processor supports them."""
    every = list(itertools.product([table for table, needs in TABLES.items() if needs <= flags],
                                   [product for product, needs in PRODUCTS.items() if needs <= flags], [1, 2, 4]))
    made = [every[i % len(every)] for i in range(runs)]
    for column, values in zip(zip(*made), zip(*every)):
        for value in set(values):
            if runs >= 24 and column.count(value) < MET:
                raise AssertionError(f"{value} takes part {column.count(value)} times, not {MET}")
    return made


def run(bin_folder, folder, seed, table, product, ranks):
    """{"exact": {task: (right, of)}, "train_s", "ask_s", "loss"}"""
    environment = dict(os.environ, DSJ_ISA=table, DSJ_NATIVE_BF16="0" if product == "bf16, emulated" else "1")
    log = open(os.path.join(folder, "log"), "w", encoding="utf-8")

    def call(*command, out=None):
        program = os.path.join(bin_folder, command[0])
        subprocess.run([program, *command[1:]], check=True, env=environment, stdout=out or log, stderr=log)

    call("dsj-make-quickstart", "--output", folder, "--seed", str(seed))
    begin = time.monotonic()
    call("dsj", "run", os.path.join(folder, "job.yaml"), "--set", f"spec.workers.slotsPerWorker={ranks}",
         "--set", f"spec.training.perDeviceTrainBatchSize={ROWS_PER_STEP // ranks}",
         "--set", f"spec.training.bf16={str(product != 'fp32').lower()}")
    trained, exact = time.monotonic(), {}
    for task in TASKS:
        answers = os.path.join(folder, task + ".jsonl")
        with open(answers, "w", encoding="utf-8") as out:
            call("dsj", "generate", "--model", os.path.join(folder, "run", "model"), "--data",
                 os.path.join(folder, "data", f"heldout-{task}.json"), "--max-new-tokens", "32", "-o", "json", out=out)
        with open(answers, encoding="utf-8") as lines:
            last = json.loads(lines.readlines()[-1])
        exact[task] = (last["exact"], last["judged"])
    with open(os.path.join(folder, "run", "metrics.jsonl"), encoding="utf-8") as lines:
        loss = json.loads(lines.readlines()[-1])["loss"]
    return {"exact": exact, "train_s": trained - begin, "ask_s": time.monotonic() - trained, "loss": loss}


def page(name, missing, rows):
    worst = {task: min(row["exact"][task] for row in rows) for task in TASKS}
    lines = [
        "# How far the quickstart is from failing", "",
        "Whether `make run` learns its tasks with every seed and every rounding. Command: `make quickstart-margin`.", "",
        "Each run has another seed (weights, rows, questions) and another rounding: kernel table, precision, bf16 products in",
        "hardware or by fp32, number of ranks. All have 16 rows per step. The columns of the tasks count exact matches among",
        "held-out questions.", "",
        f"Measured on {datetime.date.today()} on {name}, {os.cpu_count()} cores." + (f" This processor lacks: {'; '.join(missing)}." if missing else ""),
        "", "| seed | kernels | products | ranks | " + " | ".join(TASKS) + " | last loss |",
        "|---" * (5 + len(TASKS)) + "|"]
    for row in rows:
        lines.append(f"| {row['seed']} | {row['table']} | {row['product']} | {row['ranks']} | "
                     + " | ".join(f"{right} / {of}" for right, of in row["exact"].values())
                     + f" | {row['loss']:.4f} |")
    lines += ["", "Worst of each task: " + ", ".join(f"{task} {right} of {of}" for task, (right, of) in worst.items())
              + f". The goal is {GOAL:.0%} in the worst run.", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--write")
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--work", help="keeps the runs' directories here")
    options = parser.parse_args()
    name, flags = processor()
    missing = [what for what, needs in (TABLES | PRODUCTS).items() if not needs <= flags]
    for what in missing:
        print(f"LEFT OUT: {what}: this processor ({name}) does not have it", flush=True)
    rows = []
    for number, (table, product, ranks) in enumerate(settings(flags, options.runs), 1):
        folder = os.path.join(options.work, str(number)) if options.work else tempfile.mkdtemp(prefix="dsj-margin-")
        os.makedirs(folder, exist_ok=True)
        found = run(os.path.join(options.build, "bin"), folder, number, table, product, ranks)
        rows.append({"seed": number, "table": table, "product": product, "ranks": ranks, **found})
        counts = ", ".join(f"{task} {right}/{of}" for task, (right, of) in found["exact"].items())
        print(f"{number:3}/{options.runs} {table:8} {product:14} {ranks} ranks: {counts}, loss {found['loss']:.4f}, "
              f"{found['train_s']:.0f} + {found['ask_s']:.1f} s", flush=True)
        if not options.work:
            shutil.rmtree(folder)
        text = page(name, missing, rows)
        if options.write:
            with open(options.write, "w", encoding="utf-8") as out:
                out.write(text)
    print(text.splitlines()[-1])
    bad = [row["seed"] for row in rows if any(right < GOAL * of for right, of in row["exact"].values())]
    if bad:
        sys.exit(f"quickstart_margin: below {GOAL:.0%} with the seeds {bad}")


if __name__ == "__main__":
    main()
