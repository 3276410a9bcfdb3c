#!/usr/bin/env python3
"""Tokens per second of AdamW, OneBitAdam and ZeroOneAdam over a slow network: two ranks in two network namespaces, the
link between them held to a rate by tc.

Usage: bench_slow_link.py [--bin build/bin] [--rates 1gbit,100mbit] [--steps 6]
                          [--optimizers AdamW,OneBitAdam,ZeroOneAdam]
The 24 M-parameter Qwen2 shape (hidden 384, 6 layers, vocabulary 8192), one row of 128 tokens per rank and step, fp32,
stage 0, 1 thread per rank. The 1-bit optimizers freeze after their third step. The figures are those of the steps after
that, of AdamW too. Needs root, iproute2 and dsj-train, dsj-make-model. A figure is of this machine; the ratio is what
counts.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

ROW, WORLD, PORT = 128, 2, 29611
SHAPE = {"hidden": 384, "layers": 6, "heads": 6, "kv-heads": 6, "inner": 2048, "vocabulary": 8192, "positions": 512}
FROZEN = 3  # steps before the freeze: one is lost, two warm up
NAMES = [f"dsj-slow-{rank}" for rank in range(WORLD)]
PARAMS = {"AdamW": {}, "OneBitAdam": {"freeze_step": FROZEN}, "ZeroOneAdam": {"var_freeze_step": FROZEN - 1}}


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def link_up(rate):
    link_down()
    for name in NAMES:
        ip("netns", "add", name)
    ip("link", "add", "dsj-a", "netns", NAMES[0], "type", "veth", "peer", "name", "dsj-b", "netns", NAMES[1])
    for rank, (name, device) in enumerate(zip(NAMES, ("dsj-a", "dsj-b"))):
        ip("-n", name, "addr", "add", f"10.77.0.{rank + 1}/24", "dev", device)
        ip("-n", name, "link", "set", device, "up")
        ip("-n", name, "link", "set", "lo", "up")
        subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "256kb",
                        "latency", "50ms"], check=True)


def link_down():
    for name in NAMES:
        subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def run(binary, folder, config, steps):
    """Rank 0's step events."""
    training = {"modelNameOrPath": f"{folder}/model", "dataPath": f"{folder}/rows.jsonl", "outputDir": f"{folder}/out",
                "maxSteps": steps, "maxSeqLength": ROW, "saveStrategy": "no"}
    with open(f"{folder}/job.json", "w", encoding="utf-8") as file:
        json.dump({"name": "slow-link", "attempt": 1, "worldSize": WORLD, "outputDir": f"{folder}/out",
                   "training": training, "dsConfig": config, "dsConfigSource": "bench"}, file)
    shutil.rmtree(f"{folder}/out", ignore_errors=True)
    os.makedirs(f"{folder}/out/checkpoints")
    with open(f"{folder}/out/checkpoints/attempt", "w", encoding="utf-8") as file:
        file.write("1\n")
    ranks, readers, lines = [], [], [[] for _ in range(WORLD)]
    for rank in range(WORLD):
        reading, writing = os.pipe()
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(WORLD), GROUP_RANK=str(rank),
                           LOCAL_WORLD_SIZE="1", MASTER_ADDR="10.77.0.1", MASTER_PORT=str(PORT), OMP_NUM_THREADS="1",
                           DSJ_JOB_FILE=f"{folder}/job.json", DSJ_EVENT_FD=str(writing))
        log = open(f"{folder}/rank-{rank}.log", "wb")
        # A process namespace of its own: then the ranks see that they share no memory.
        command = ["ip", "netns", "exec", NAMES[rank], "unshare", "--pid", "--fork", "--mount-proc", "--uts",
                   os.path.join(binary, "dsj-train")]
        ranks.append(subprocess.Popen(command, env=environment, pass_fds=[writing], stdout=log,
                                      stderr=subprocess.STDOUT))
        os.close(writing)
        pipe = os.fdopen(reading)
        readers.append(threading.Thread(target=lambda p=pipe, r=rank: lines[r].extend(p)))
        readers[-1].start()
    codes = [rank.wait(timeout=1800) for rank in ranks]
    for reader in readers:
        reader.join()
    with open(f"{folder}/rank-0.log", encoding="utf-8", errors="replace") as log:
        text = log.read()
    if any(codes):
        sys.exit(f"bench_slow_link: the ranks ended with {codes}: {text[-2000:]}")
    if "backend ring" not in text:
        sys.exit(f"bench_slow_link: the ranks did not take the network: {text[-2000:]}")
    return [event for event in map(json.loads, lines[0]) if event["event"] == "step"]


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--rates", default="1gbit,100mbit")
    parser.add_argument("--steps", type=int, default=6, help="measured ones, behind the freeze")
    parser.add_argument("--optimizers", default=",".join(PARAMS))
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="dsj-slow-link-")
    try:
        subprocess.check_output([os.path.join(options.bin, "dsj-make-model"), "--output", f"{folder}/model", "--untied",
                                 "--end-of-text", "0"] + [x for k, v in SHAPE.items() for x in (f"--{k}", str(v))])
        draw = random.Random(7)
        with open(f"{folder}/rows.jsonl", "w", encoding="utf-8") as file:
            for _ in range(64):
                ids = [draw.randrange(1, SHAPE["vocabulary"]) for _ in range(ROW)]
                file.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
        print("| link | optimizer | tokens/s | seconds per step | MB sent per step | against AdamW |")
        print("|---|---|---|---|---|---|")
        for rate in options.rates.split(","):
            link_up(rate)
            base = None
            for optimizer in options.optimizers.split(","):
                config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
                          "optimizer": {"type": optimizer, "params": {"lr": 1e-4, "eps": 1e-6, **PARAMS[optimizer]}}}
                steps = run(options.bin, folder, config, FROZEN + options.steps)[FROZEN:]
                speed = statistics.median(step["tokens_per_second"] for step in steps)
                seconds = statistics.median(step["step_seconds"] for step in steps)
                base = base or speed
                print(f"| {rate} | {optimizer} | {speed:.1f} | {seconds:.2f} | {steps[-1]['wire_bytes'] / 1e6:.2f} | "
                      f"{speed / base:.2f} |", flush=True)
    finally:
        link_down()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
