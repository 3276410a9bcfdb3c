#!/usr/bin/env python3
"""What `dsj plan` predicts, held against what dsj-train's own counting allocator and collectives measure.

Usage: plan_check.py BIN_DIRECTORY [--gtest-report FILE] [--write docs/reports/plan.md] [--quick] [--padding]
A Qwen2 shape of 24 M parameters (hidden 384, 6 layers, vocabulary 8192), 2 ranks, 2 steps of 2 micro-steps, at every
stage, in fp32 and bf16, with and without recompute; then in fp32 with rows of many lengths, with most labels masked,
packed and grouped by length; with rows so long that layers run in pieces, their inputs in a file; and with rows of
alpaca's lengths, as they are and padded to the longest of their micro-batch. Parameters, gradients, optimizer and buckets
must be within 5 % of the prediction, activations at most the prediction and it at most 25 % above them, wire bytes equal.
Without padding, activations must be smaller by the factor of the tokens, as measured and as predicted.
Exit 1 when one is not. --quick: stages 0 and 3 only, of a small shape. --padding: the rows of alpaca's lengths alone.
"""
import argparse
import json
import math
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

ROW, MICRO, ACCUMULATION, WORLD = 128, 2, 2, 2
LONG = 1600  # a micro-batch of two is more than 2,048 tokens: it is cut into pieces (job/layout/row_pieces.h)
FULL = {"hidden": 384, "layers": 6, "heads": 6, "kv-heads": 6, "inner": 2048, "vocabulary": 8192, "positions": 4096}
QUICK = {"hidden": 128, "layers": 3, "heads": 4, "kv-heads": 2, "inner": 512, "vocabulary": 1024, "positions": 4096}
EXACT = ("parameters", "gradients", "optimizer", "buckets")
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
LONGEST = 512  # of alpaca's rows
NEAR = 0.02    # of the tokens' factor


def ds_config(stage, precision, more=None):
    # With overlap_comm a reduction frees its memory whenever it ends: then the prediction is a bound, not a figure.
    config = {"train_micro_batch_size_per_gpu": MICRO, "gradient_accumulation_steps": ACCUMULATION,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
              "zero_optimization": {"stage": stage, "overlap_comm": False, "reduce_bucket_size": 1000000, "allgather_bucket_size": 1000000,
                                    "stage3_prefetch_bucket_size": 1000000, "stage3_max_live_parameters": 6000000,
                                    "stage3_max_reuse_distance": 0, "stage3_param_persistence_threshold": 1000}}
    if precision == "bf16":
        config["bf16"] = {"enabled": True}
    return {**config, **(more or {})}


def alpaca_lengths(count):
    """Tokens of rows, prompts included: bench/train_loop/rows.cc has the distribution."""
    draw = random.Random(11)
    return [min(LONGEST, 35 + int(19 * abs(draw.gauss(0, 1))) + int(44 * math.exp(0.8 * draw.gauss(0, 1)))) for _ in range(count)]


def padded(lengths, micro):
    """Each row is as long as the longest of its micro-batch, as Hugging Face's collator makes it."""
    return [max(lengths[i // micro * micro:][:micro]) for i in range(len(lengths))]


def most_tokens(lengths, micro):
    return max(sum(lengths[first:first + micro]) for first in range(0, len(lengths), micro))


def manifest(folder, config, recompute, rows="rows", more=None):
    return {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {"name": "plan-check"},
            "spec": {"deepspeed": {"config": config}, "workers": {"slotsPerWorker": WORLD},
                     "training": {"modelNameOrPath": f"{folder}/model", "dataPath": f"{folder}/{rows}.jsonl",
                                  "outputDir": f"{folder}/out", "maxSteps": 2, "maxSeqLength": ROW,
                                  "saveStrategy": "no", "gradientCheckpointing": recompute, **(more or {})}}}


def events_of(binary, folder, job):
    """Runs WORLD ranks as the agent would, without one; every rank's events."""
    spec = job["spec"]
    with open(f"{folder}/job.json", "w", encoding="utf-8") as file:
        json.dump({"name": "plan-check", "attempt": 1, "worldSize": WORLD, "outputDir": spec["training"]["outputDir"],
                   "training": spec["training"], "dsConfig": spec["deepspeed"]["config"], "dsConfigSource": "plan"}, file)
    shutil.rmtree(f"{folder}/out", ignore_errors=True)
    os.makedirs(f"{folder}/out/checkpoints")
    with open(f"{folder}/out/checkpoints/attempt", "w", encoding="utf-8") as file:
        file.write("1\n")
    store = socket.create_server(("127.0.0.1", 0))
    ranks, readers, lines = [], [], [[] for _ in range(WORLD)]
    for rank in range(WORLD):
        reading, writing = os.pipe()
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), GROUP_RANK="0",
                           LOCAL_WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1",
                           MASTER_PORT=str(store.getsockname()[1]), DSJ_JOB_FILE=f"{folder}/job.json",
                           DSJ_EVENT_FD=str(writing))
        inherited = [writing]
        if rank == 0:
            environment["DSJ_STORE_FD"] = str(store.fileno())
            inherited.append(store.fileno())
        log = open(f"{folder}/rank-{rank}.log", "wb")
        ranks.append(subprocess.Popen([os.path.join(binary, "dsj-train")], env=environment, pass_fds=inherited,
                                      stdout=log, stderr=subprocess.STDOUT))
        os.close(writing)
        pipe = os.fdopen(reading)
        readers.append(threading.Thread(target=lambda p=pipe, r=rank: lines[r].extend(p)))
        readers[-1].start()
    for rank in ranks:
        rank.wait(timeout=1800)
    for reader in readers:
        reader.join()
    store.close()
    for rank, process in enumerate(ranks):
        if process.returncode != 0:
            with open(f"{folder}/rank-{rank}.log", encoding="utf-8", errors="replace") as log:
                raise RuntimeError(f"rank {rank} ended with {process.returncode}: {log.read()[-2000:]}")
    return [[json.loads(line) for line in one] for one in lines]


def compare(binary, folder, stage, precision, recompute, rows="rows", more=None, keys=None, micro=MICRO):
    """[(what, predicted, measured, ok)] of one run; measured is the larger of the ranks'."""
    job = manifest(folder, ds_config(stage, precision, keys) | {"train_micro_batch_size_per_gpu": micro}, recompute, rows, more)
    with open(f"{folder}/job.yaml", "w", encoding="utf-8") as file:
        json.dump(job, file)  # JSON is YAML
    plan = json.loads(subprocess.check_output([os.path.join(binary, "dsj"), "plan", f"{folder}/job.yaml", "-o", "json"]))
    events = events_of(binary, folder, job)
    peaks = [next(e for e in one if e["event"] == "memory") for one in events]
    if plan["memory"]["rows"]["from"] != "data":
        raise RuntimeError(f"the plan did not look at the data: {plan['memory']['rows']}")
    bytes_of = plan["memory"]["bytesPerRank"]
    rows = []
    for name in EXACT + (("host",) if keys else ()):
        measured = max(p["peak"][name] for p in peaks)
        rows.append((name, bytes_of[name], measured, abs(bytes_of[name] - measured) <= 0.05 * max(measured, 1)))
    measured = max(p["peak"]["activations"] for p in peaks)
    most = 1.05 if keys else 1.25  # long rows are predicted more closely
    rows.append(("activations", bytes_of["activations"], measured, measured <= bytes_of["activations"] <= most * measured))
    measured = max(p["total"] for p in peaks)
    at_once = bytes_of["peak"] + (bytes_of["host"] if keys else 0)  # the allocator counts host memory, too
    rows.append(("all at once", at_once, measured, measured <= at_once <= 1.25 * measured))
    wire = sum(plan["wire"]["bytesPerStep"].values())
    sent = [e["wire_bytes"] for e in events[0] if e["event"] == "step"]
    rows.append(("wire bytes", wire, max(sent), all(one == wire for one in sent)))
    return rows


def write_rows(path, vocabulary, lengths, masked):
    """Pre-tokenized rows; the first `masked` of a length have no label."""
    draw = random.Random(7)
    with open(path, "w", encoding="utf-8") as file:
        for length in lengths:
            ids = [draw.randrange(1, vocabulary) for _ in range(length)]
            hidden = int(length * masked)
            file.write(json.dumps({"input_ids": ids, "labels": [-100] * hidden + ids[hidden:]}) + "\n")


def padding(binary, folder, vocabulary, micro):
    """Rows of alpaca's lengths as they are and padded. Every token has a target: a token without one takes less anyway.
    What activations took in both runs, and by which factor they fell, beside that of the tokens in the largest micro-batch."""
    lengths = alpaca_lengths(2 * WORLD * ACCUMULATION * micro)
    rows = {"alpaca": lengths, "padded": padded(lengths, micro)}
    results, found = [], {}
    for kind, each in rows.items():
        write_rows(f"{folder}/{kind}.jsonl", vocabulary, each, 0)
        ran = compare(binary, folder, 2, "fp32", False, kind, {"maxSeqLength": LONGEST, "shuffle": False}, None, micro)
        activations = next(row for row in ran if row[0] == "activations")
        results.append((f"{kind}, micro-batch {micro}", [activations]))
        found[kind] = activations[1:3]
        say(*results[-1])
    tokens = most_tokens(rows["padded"], micro) / most_tokens(rows["alpaca"], micro)
    factors = [found["padded"][i] / found["alpaca"][i] for i in (0, 1)]
    ok = all(abs(factor / tokens - 1) <= NEAR for factor in factors)
    print(f"micro-batch {micro}: without padding {tokens:.3f} times fewer tokens in the largest micro-batch, activations "
          f"{factors[0]:.3f} times fewer as predicted, {factors[1]:.3f} as measured{'' if ok else ' !'}", flush=True)
    results.append((f"padding, micro-batch {micro}", [("factor", *factors, ok)]))
    return results


def kinds_of_rows(quick):
    """(name, file, more arguments, stages): what else than rows of one length is compared."""
    stages = (2,) if quick else (0, 2, 3)
    return [("lengths", "lengths", {}, stages), ("masked", "masked", {}, stages),
            ("packed", "lengths", {"packing": True}, stages), ("grouped", "lengths", {"groupByLength": True}, stages)]


def table(results):
    lines = ["| run | " + " | ".join(what for what, *_ in results[0][1]) + " |", "|---|" + "---|" * len(results[0][1])]
    for name, rows in results:
        cells = [f"{predicted / 2**20:.2f} / {measured / 2**20:.2f}" + ("" if ok else " **!**")
                 for _, predicted, measured, ok in rows]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def say(name, rows):
    print(name + ": " + ", ".join(f"{what} {predicted} / {measured}{'' if ok else ' !'}" for what, predicted, measured, ok in rows),
          flush=True)


def usual(binary, folder, quick):
    """The runs of the page's table."""
    results = []
    for precision in ("fp32", "bf16"):
        for stage in ((0, 3) if quick else (0, 1, 2, 3)):
            for recompute in (False, True):
                name = f"stage {stage} {precision}" + (" recompute" if recompute else "")
                results.append((name, compare(binary, folder, stage, precision, recompute)))
                say(*results[-1])
    for kind, rows, more, stages in kinds_of_rows(quick):
        for stage in stages:
            for recompute in (False, True):
                name = f"{kind}, stage {stage} fp32" + (" recompute" if recompute else "")
                results.append((name, compare(binary, folder, stage, "fp32", recompute, rows, more)))
                say(*results[-1])
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--gtest-report")
    parser.add_argument("--write")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--padding", action="store_true")
    arguments = parser.parse_args()
    if arguments.write and arguments.padding:
        parser.error("--write needs the runs that --padding leaves out")
    binary = os.path.abspath(arguments.binary)
    folder = tempfile.mkdtemp(prefix="dsj-plan-check-")
    try:
        shape = QUICK if arguments.quick else FULL
        subprocess.check_output([os.path.join(binary, "dsj-make-model"), "--output", f"{folder}/model", "--untied",
                                 "--end-of-text", "0"] + [x for k, v in shape.items() for x in (f"--{k}", str(v))])
        count = WORLD * MICRO * ACCUMULATION * 2
        draw = random.Random(5)
        lengths = [min(ROW, 6 + int(draw.expovariate(1 / 40))) for _ in range(8 * count)]
        write_rows(f"{folder}/rows.jsonl", shape["vocabulary"], [ROW] * count, 0)
        write_rows(f"{folder}/long.jsonl", shape["vocabulary"], [LONG] * count, 0)
        write_rows(f"{folder}/lengths.jsonl", shape["vocabulary"], lengths, 0)
        write_rows(f"{folder}/masked.jsonl", shape["vocabulary"], lengths, 0.7)
        results, beside = [], []
        if not arguments.padding:
            results = usual(binary, folder, arguments.quick)
            beside.append(("long rows", compare(binary, folder, 2, "fp32", True, "long", {"maxSeqLength": LONG},
                                                {"activation_checkpointing": {"cpu_checkpointing": True}})))
            say(*beside[0])
        for micro in ((4,) if arguments.quick else (2, 4, 8)):
            beside += padding(binary, folder, shape["vocabulary"], micro)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.write:
        with open(arguments.write, encoding="utf-8") as file:
            page = file.read()
        page = re.sub(re.escape(BEGIN) + ".*" + re.escape(END), lambda _: f"{BEGIN}\n{table(results)}{END}", page, flags=re.S)
        with open(arguments.write, "w", encoding="utf-8") as file:
            file.write(page)
    bad = {name: [what for what, _, _, ok in rows if not ok] for name, rows in results + beside}
    if arguments.gtest_report:
        cases = [{"name": name, "classname": "Plan", "result": "COMPLETED",
                  **({"failures": [{"failure": ", ".join(what), "type": ""}]} if what else {})} for name, what in bad.items()]
        with open(arguments.gtest_report, "w", encoding="utf-8") as out:
            json.dump({"testsuites": [{"name": "Plan", "testsuite": cases}]}, out)
    failed = sum(1 for what in bad.values() if what)
    print(f"{len(bad)} runs, {failed} with a class out of its bounds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
