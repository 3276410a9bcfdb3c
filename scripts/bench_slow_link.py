#!/usr/bin/env python3
"""Compares tokens per second over a slow network: AdamW and the 1-bit optimizers after their freeze, or stage 3 in bf16 and
with ZeRO++'s quantization.

Usage: bench_slow_link.py [--set optimizers|stage3] [--bin build/bin] [--rates 1000,100] [--steps 9] [--micro 1] [--tokens 256]
Two ranks run in two network namespaces with one link, which tc limits to each rate (Mbit/s, in each direction). They train
the 24 M-parameter shape of bench_train.py, with optimizers at stage 0 in fp32, rows of --tokens tokens and one thread per
rank. Compare the ratio to the first line of the same link. Steps before the first compressed one are left out, in all runs.
The table also shows a rank's CPU seconds per step and the seconds that its bytes take on the link: on a busy machine a
step takes longer than their sum. Needs root, ip and tc, and says so if one is missing.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

WORLD, WARM_UP = 2, 5
ADDRESS = ("10.77.0.1", "10.77.0.2")
PORT = 29500
# The first compressed step is the third: the first two have the counts 1 (which updates nothing) and 2.
OPTIMIZERS = {name: {"zero_optimization": {"stage": 0}, "optimizer": optimizer} for name, optimizer in {
    "AdamW": {"type": "AdamW", "params": {"lr": 1e-4}},
    "OneBitAdam": {"type": "OneBitAdam", "params": {"lr": 1e-4, "freeze_step": 2}},
    "OneBitLamb": {"type": "OneBitLamb", "params": {"lr": 1e-4, "freeze_step": 2}},
    "ZeroOneAdam": {"type": "ZeroOneAdam", "params": {"lr": 1e-4, "var_freeze_step": 1}},
    "ZeroOneAdam, meeting every 4th step": {
        "type": "ZeroOneAdam",
        "params": {"lr": 1e-4, "var_freeze_step": 1, "local_step_scaler": 1, "local_step_clipper": 4}},
}.items()}
WEIGHTS, GRADIENTS = {"zero_quantized_weights": True}, {"zero_quantized_gradients": True}
STAGE3 = {name: {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3, "stage3_max_reuse_distance": 0, **keys}}
          for name, keys in {"stage 3": {}, "quantized weights": WEIGHTS, "quantized gradients": GRADIENTS,
                             "both": WEIGHTS | GRADIENTS}.items()}
SETS = {"optimizers": OPTIMIZERS, "stage3": STAGE3}
# Sends bytes for a while, to measure the link's rate for a program.
RECEIVE = "import socket; s = socket.create_server(('0.0.0.0', 7000)); c = s.accept()[0]\nwhile c.recv(1 << 20): pass"
SEND = """import socket, time
for _ in range(100):
    try: s = socket.create_connection(("%s", 7000)); break
    except OSError: time.sleep(0.05)
start = time.time()
for _ in range(%d): s.sendall(bytes(1 << 16))
s.shutdown(socket.SHUT_WR); s.recv(1)
print(%d * 65536 * 8 / 1e6 / (time.time() - start))"""


def sh(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Link:
    """Two network namespaces connected by one link."""

    def __init__(self):
        self.names = [f"dsj-bench-{os.getpid()}-{rank}" for rank in range(WORLD)]
        self.ends = [f"dsjb{os.getpid()}{end}" for end in "ab"]

    def __enter__(self):
        try:
            for name in self.names:
                sh("ip", "netns", "add", name)
            sh("ip", "link", "add", self.ends[0], "netns", self.names[0], "type", "veth", "peer", "name", self.ends[1],
               "netns", self.names[1])
            for name, end, address in zip(self.names, self.ends, ADDRESS):
                sh("ip", "-n", name, "addr", "add", f"{address}/30", "dev", end)
                sh("ip", "-n", name, "link", "set", "lo", "up")
                sh("ip", "-n", name, "link", "set", end, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)

    def hold(self, rate):
        """Limits the link to `rate` Mbit/s in each direction."""
        for name, end in zip(self.names, self.ends):
            sh("tc", "-n", name, "qdisc", "replace", "dev", end, "root", "tbf", "rate", f"{rate}mbit", "burst", "256kb",
               "latency", "50ms")

    def inside(self, rank, command):
        # Ranks in one PID namespace would count as one host and share memory.
        return ["ip", "netns", "exec", self.names[rank], "unshare", "--pid", "--fork", "--kill-child", "--mount-proc",
                *command]

    def measured(self, rate):
        """Measures the Mbit/s of one TCP connection."""
        blocks = max(64, rate * 2)  # about a second
        receiver = subprocess.Popen(self.inside(1, [sys.executable, "-c", RECEIVE]))
        try:
            return float(sh(*self.inside(0, [sys.executable, "-c", SEND % (ADDRESS[1], blocks, blocks)])))
        finally:
            receiver.terminate()
            receiver.wait()


def cpu_seconds(process):
    """CPU seconds of a rank, which is the only child of `unshare`."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="utf-8") as file:
        child = file.read().split()
    if not child:
        return 0.0
    with open(f"/proc/{child[0]}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def steps_of(options, link, work, ds_config):
    """Returns (step events of rank 0 after the warm-up, CPU seconds of a rank per step)."""
    output = os.path.join(work, "out")
    shutil.rmtree(output, ignore_errors=True)
    os.makedirs(os.path.join(output, "checkpoints"))
    with open(os.path.join(output, "checkpoints", "attempt"), "w", encoding="utf-8") as file:
        file.write("1\n")
    config = {"train_micro_batch_size_per_gpu": options.micro, "gradient_clipping": 0, **ds_config}
    training = {"modelNameOrPath": os.path.join(work, "model"), "dataPath": os.path.join(work, "data.json"),
                "outputDir": output, "maxSteps": options.steps + 1, "maxGradNorm": 0, "maxSeqLength": options.tokens,
                "saveStrategy": "no", "shuffle": False}
    job = os.path.join(work, "job.json")
    with open(job, "w", encoding="utf-8") as file:
        json.dump({"name": "bench", "attempt": 1, "worldSize": WORLD, "outputDir": output, "training": training,
                   "dsConfig": config, "dsConfigSource": "bench"}, file)
    reading, writing = os.pipe()
    ranks, logs = [], [os.path.join(work, f"rank-{rank}.log") for rank in range(WORLD)]
    for rank in range(WORLD):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(WORLD), GROUP_RANK=str(rank),
                           LOCAL_WORLD_SIZE="1", MASTER_ADDR=ADDRESS[0], MASTER_PORT=str(PORT), OMP_NUM_THREADS="1",
                           DSJ_JOB_FILE=job)
        if rank == 0:
            environment["DSJ_EVENT_FD"] = str(writing)
        with open(logs[rank], "wb") as log:
            ranks.append(subprocess.Popen(link.inside(rank, [os.path.join(options.bin, "dsj-train")]), env=environment,
                                          pass_fds=[writing] if rank == 0 else [], stdout=log, stderr=subprocess.STDOUT))
    os.close(writing)
    steps, seconds = [], []
    try:
        with os.fdopen(reading) as pipe:
            for event in map(json.loads, pipe):
                if event["event"] != "step":
                    continue
                steps.append(event)
                if len(steps) in (WARM_UP, options.steps):  # one more step follows, so the ranks are still there
                    seconds.append(sum(map(cpu_seconds, ranks)) / WORLD)
        for process in ranks:
            process.wait()
    finally:
        for process in ranks:  # --kill-child ends its rank
            process.kill()
            process.wait()
    for process, log in zip(ranks, logs):
        if process.returncode != 0:
            with open(log, encoding="utf-8", errors="replace") as text:
                sys.exit(f"bench_slow_link: a rank ended with {process.returncode}: {text.read()[-2000:]}")
    steps = steps[WARM_UP:options.steps]
    return steps, (seconds[1] - seconds[0]) / len(steps)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--set", default="optimizers", choices=SETS)
    parser.add_argument("--rates", default="1000,100")
    parser.add_argument("--steps", type=int, default=WARM_UP + 4)
    parser.add_argument("--micro", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    lacking = [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]
    if os.geteuid() != 0 or lacking:
        print("bench_slow_link: skipped: it needs root, ip, tc and unshare" + (f"; not found: {lacking}" if lacking else ""))
        return 0
    work = tempfile.mkdtemp(prefix="dsj-bench-")
    try:
        subprocess.run([os.path.join(options.bin, "bench_train_loop"), "prepare", work, "fixed"], check=True,
                       stdout=subprocess.DEVNULL)
        with Link() as link:
            for rate in [int(rate) for rate in options.rates.split(",")]:
                link.hold(rate)
                print(f"{rate} Mbit/s, {link.measured(rate):.0f} as one TCP connection measures it, load average "
                      f"{os.getloadavg()[0]:.1f}\n{'':36} {'tokens/s':>9} {'ratio':>6} {'s/step':>7} {'CPU s':>6} {'link s':>7} "
                      f"{'MB/step':>8}")
                reference = None
                for name, ds_config in SETS[options.set].items():
                    steps, cpu = steps_of(options, link, work, ds_config)
                    seconds = sum(step["step_seconds"] for step in steps)
                    speed = sum(step["tokens"] for step in steps) / seconds
                    reference = reference or speed
                    sent = sum(step["wire_bytes"] for step in steps) / len(steps) / 1e6
                    print(f"{name:36} {speed:9.0f} {speed / reference:6.2f} {seconds / len(steps):7.2f} {cpu:6.2f} "
                          f"{sent * 8 / rate:7.2f} {sent:8.2f}", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
