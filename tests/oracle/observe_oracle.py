#!/usr/bin/env python3
"""The monitors' files read back by their own readers: TensorBoard's event accumulator and Python's csv.

Runs `dsj run` of build/bin (or DSJ_BIN) on a small model with both monitors, stops it short, goes on, and compares every
curve with metrics.jsonl: same x, same values, no x twice across the two attempts. Exit 1 when something differs.
"""
# requires: tensorboard==2.20.0 setuptools==80.9.0
import csv
import json
import os
import subprocess
import sys
import tempfile

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BIN = os.environ.get("DSJ_BIN", os.path.join(ROOT, "build", "bin"))
CONFIG = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "wall_clock_breakdown": True,
          "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, "zero_optimization": {"stage": 2},
          "tensorboard": {"enabled": True, "output_path": "tb", "job_name": "job"},
          "csv_monitor": {"enabled": True, "output_path": "csv", "job_name": "job"}}
TIMES = ["forward", "backward", "backward_inner", "backward_allreduce", "step"]


def train(work, steps):
    command = [os.path.join(BIN, "dsj"), "run", "--nproc_per_node=2", "--deepspeed", "ds.json", "--model_name_or_path",
               os.path.join(ROOT, "tests", "fixtures", "tiny-qwen2"), "--data_path", "data.json", "--output_dir", "out",
               "--max_steps", str(steps), "--learning_rate", "1e-3", "--lr_scheduler_type", "linear", "--eval_strategy", "steps",
               "--eval_steps", "2", "--validation_split_percentage", "20"]
    subprocess.run(command, cwd=work, check=True, stdout=subprocess.DEVNULL)


def from_tensorboard(folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def from_csv(folder):
    curves = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        tag = "Train/Samples/" + rows[0][1]
        assert rows[0][0] == "step" and name == tag.replace("/", "_") + ".csv", (name, rows[0])
        curves[tag] = [(int(x), float(value)) for x, value in rows[1:]]
    return curves


def main():
    if not os.path.exists(os.path.join(BIN, "dsj-train")):
        sys.exit(f"{BIN} has no dsj-train: build first")
    with tempfile.TemporaryDirectory(prefix="dsj-observe-") as work:
        ids = [[(row * 5 + i * (1 + row % 3)) % 200 for i in range(12)] for row in range(20)]
        for name, value in (("ds.json", CONFIG), ("data.json", [{"input_ids": i, "labels": i} for i in ids])):
            with open(os.path.join(work, name), "w", encoding="utf-8") as file:
                json.dump(value, file)
        for steps in (4, 9):  # the second attempt goes on from the checkpoint of step 4
            train(work, steps)
        with open(os.path.join(work, "out", "metrics.jsonl"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        board, table = from_tensorboard(os.path.join(work, "tb", "job")), from_csv(os.path.join(work, "csv", "job"))
    expected = {}
    for key, tag in (("loss", "train_loss"), ("lr", "lr"), ("eval_loss", "eval_loss")):
        expected["Train/Samples/" + tag] = [(line["step"] * 4, line[key]) for line in lines if key in line]
    steps = [line["step"] * 4 for line in lines if "loss" in line]
    assert steps == [4 * step for step in range(1, 10)], steps
    assert set(board) == set(table) == set(expected) | {f"Train/Samples/elapsed_time_ms_{t}" for t in TIMES}, set(board)
    for tag, points in table.items():
        if tag in expected:
            assert points == expected[tag], (tag, points, expected[tag])
        else:
            assert [x for x, _ in points] == steps and all(value >= 0 for _, value in points), (tag, points)
        narrow = [(x, float(numpy.float32(value))) for x, value in points]
        assert board[tag] == narrow, (tag, board[tag], narrow)
    print(f"observe: {len(board)} curves, {len(steps)} steps in two attempts: TensorBoard and csv read what was measured")


if __name__ == "__main__":
    main()
