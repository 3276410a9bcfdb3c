#!/usr/bin/env python3
"""Compares the speed of `dsj run` with a plain libtorch loop, Python DeepSpeed or JAX in the same run, and prints a table.

Usage: bench_train.py [--bin build/bin] [--deepspeed | --jax] [--quick] [--only REGEX] [--steps 8] [--rounds 2] [--list] [--write PAGE]

Rows: fixed (256 tokens), alpaca (its lengths, no loss on the prompt) on the 24 M-parameter Qwen2 shape, and vocabulary
(alpaca's rows, 152k words, 80 M parameters). fp32 and bf16, ZeRO stages 0 to 3, LoRA. The plain loop pads to the longest
row of a micro-batch; its LoRA has the same adapters. Both sides start from the same weights, read the same rows and run in
turn. Compare the ratios; on a busy machine only those of CPU seconds (all processes, including start-up). Tokens exclude
padding. In fp32 the losses must agree, or the command fails. A run in bf16 is also compared with the same run in fp32.
DSJ_NATIVE_BF16=0 emulates a CPU without bf16 units.
--deepspeed: compares with Python DeepSpeed at the same stage (bench/deepspeed_loop.py), without LoRA.
--jax: compares with one jitted step of JAX (bench/jax_loop.py), on one rank, without LoRA.
--quick: one case of each kind, 3 minutes on two cores. --only: cases whose names in --list match the expression.
--write: writes the table between the marks of a page, with the processor and the load.
"""
import argparse
import dataclasses
import itertools
import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WARM_UP = 2
QUICK = ("fixed, micro-batch 4, 1 x 2, fp32, stage 0", "fixed, micro-batch 4, 2 x 1, fp32, stage 3",
         "fixed, micro-batch 4, 2 x 1, bf16, stage 3", "alpaca, micro-batch 4, 2 x 1, fp32, stage 2",
         "alpaca, micro-batch 4, 2 x 1, fp32, LoRA, stage 2", "vocabulary, micro-batch 2, 2 x 1, fp32, stage 1")
APART = 1e-4  # the largest relative distance of two losses in fp32


@dataclasses.dataclass(frozen=True)
class Loop:
    """What both sides train. The plain loop runs once for all stages."""
    rows: str
    micro: int
    world: int
    threads: int
    precision: str
    lora: bool = False

    def __str__(self):
        return (f"{self.rows}, micro-batch {self.micro}, {self.world} x {self.threads}, {self.precision}"
                f"{', LoRA' if self.lora else ''}")


def cases():
    """[(Loop, [stages])]"""
    both = ("fp32", "bf16")
    found = [(Loop("fixed", 4, 1, 2, precision), [0]) for precision in both]
    found += [(Loop("fixed", 4, 2, 1, precision), [0, 1, 2, 3]) for precision in both]
    found += [(Loop("fixed", 4, 2, 1, precision, True), [2, 3]) for precision in both]
    found += [(Loop("alpaca", 4, 1, 2, precision), [0]) for precision in both]
    found += [(Loop("alpaca", micro, 2, 1, precision), [2, 3]) for micro, precision in itertools.product((1, 2, 4, 8), both)]
    found += [(Loop("alpaca", 4, 2, 1, precision, True), [2]) for precision in both]
    found += [(Loop("vocabulary", 2, 2, 1, precision), [1, 3]) for precision in both]
    return found


def name(loop, stage):
    return f"{loop}, stage {stage}"


def chosen(options):
    wanted = [(loop, [stage for stage in stages if re.search(options.only, name(loop, stage))
                      and (not options.quick or name(loop, stage) in QUICK)]) for loop, stages in cases()]
    if options.jax:
        wanted = [(loop, stages) for loop, stages in wanted if loop.world == 1 and not loop.lora]
    if options.deepspeed:  # a reference for each stage
        wanted = [(loop, [stage]) for loop, stages in wanted for stage in stages if not loop.lora]
    return [(loop, stages) for loop, stages in wanted if stages]


def spent():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclasses.dataclass
class Run:
    first: float  # seconds from start to the end of the first step
    steps: list   # objects as in metrics.jsonl
    cpu: float    # seconds, all processes


def launch(command, work, environment, others, parse, steps=None):
    """Runs a command in parallel to others. parse: converts a line of output to a step or None. steps: reads them at the end."""
    begin, start, first, seen = spent(), time.time(), None, []
    beside = [subprocess.Popen(command, cwd=work, env=each, stdout=subprocess.DEVNULL) for each in others]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=work, env=environment, text=True)
    for line in child.stdout:
        step = parse(line)
        if step is not None:
            first = first or time.time() - start
            seen.append(step)
    codes = [child.wait(), *(other.wait() for other in beside)]
    if any(codes) or not seen:
        sys.exit(f"bench_train: {' '.join(command)} ended with {codes}")
    return Run(first, steps() if steps else seen, spent() - begin)


def beside(work, loop, stage, options):
    """The reference: the plain loop, DeepSpeed at this stage, or JAX."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ([options.deepspeed, os.path.join(ROOT, "bench", "deepspeed_loop.py")] if options.deepspeed
               else [options.jax, os.path.join(ROOT, "bench", "jax_loop.py")] if options.jax
               else [os.path.join(options.bin, "bench_train_loop"), "run"])
    command += [work, str(options.steps), str(loop.micro), *(["--stage", str(stage)] if options.deepspeed else [])]
    command += ["--bf16"] * (loop.precision == "bf16") + ["--lora"] * loop.lora
    environment = os.environ | {"OMP_NUM_THREADS": str(loop.threads), "WORLD_SIZE": str(loop.world), "MASTER_PORT": str(port)}
    return launch(command, work, environment | {"RANK": "0"},
                  [environment | {"RANK": str(rank)} for rank in range(1, loop.world)],
                  lambda line: json.loads(line) if line.startswith('{"step"') else None)


def ours(options, work, loop, stage):
    output = os.path.join(work, "run")
    shutil.rmtree(output, ignore_errors=True)
    config = os.path.join(work, "ds_config.json")
    with open(config, "w", encoding="utf-8") as out:
        json.dump({"zero_optimization": {"stage": stage}, "gradient_clipping": 1.0, "bf16": {"enabled": loop.precision == "bf16"},
                   "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0}}}, out)
    command = [os.path.join(options.bin, "dsj"), "run", f"--nproc_per_node={loop.world}", "--deepspeed", config,
               "--model_name_or_path", os.path.join(work, "model"), "--data_path", os.path.join(work, "data.json"),
               "--output_dir", output, "--max_steps", str(options.steps), "--per_device_train_batch_size", str(loop.micro),
               "--shuffle", "False", "--save_strategy", "no", "--learning_rate", "1e-3", "--lr_scheduler_type", "constant",
               "--loss_normalization", "micro-batch"]
    command += ["--bf16", "True"] * (loop.precision == "bf16")
    if loop.lora:
        command += ["--use_lora", "True", "--lora_r", "8", "--lora_alpha", "16", "--lora_target_modules", "all-linear"]

    def steps():
        with open(os.path.join(output, "metrics.jsonl"), encoding="utf-8") as metrics:
            return [json.loads(line) for line in metrics]
    return launch(command, work, os.environ | {"OMP_NUM_THREADS": str(loop.threads)}, [],
                  lambda line: line if line.startswith("step ") else None, steps)


@dataclasses.dataclass
class Figures:
    """Combines several runs: median tokens/s after the warm-up, peak bytes of a rank, bytes that rank 0 sends in a step,
    the fastest first step, median CPU seconds, the losses of the first run."""
    speed: float
    peak: int
    wire: int | None
    first: float
    cpu: float
    losses: list


def figures(runs):
    steps = [step for run in runs for step in run.steps]
    return Figures(statistics.median(step["tokens_per_second"] for run in runs for step in run.steps[WARM_UP:]),
                   max(step["host_rss_bytes"] for step in steps), runs[0].steps[-1].get("wire_bytes"),
                   min(run.first for run in runs), statistics.median(run.cpu for run in runs),
                   [step["loss"] for step in runs[0].steps])


def compare(loop, found, reference):
    """Exits if the two sides do not train the same. Each side initializes adapters with its own generator, but they begin
    with no effect: only the first losses are the same."""
    if loop.precision != "fp32":
        return
    pairs = list(zip(found.losses, reference.losses))[:1 if loop.lora else None]
    apart = max(abs(a - b) / b for a, b in pairs)
    if apart > APART:
        sys.exit(f"bench_train: {loop}: the two sides do not train the same: losses are {apart:.1e} apart")


def peer(options):
    return "DeepSpeed" if options.deepspeed else "JAX" if options.jax else "the loop"


def head(options):
    other = peer(options)
    return ("rows, micro-batch, ranks x threads", "stage", "tokens/s", f"of {other}", f"CPU, {other.removeprefix('the ')} / ours",
            "over fp32", "MiB per rank", f"of {other}", "MB sent per step", f"of {other}", "first step, s", f"of {other}")


def row(loop, found, reference, wide, label):
    """Cells of the table. wide: the same run in fp32, or None. label: the stage; for the reference its name."""
    own = found is reference
    over = f"{found.speed / wide.speed:.2f}" if wide else ""
    wire = ("" if found.wire is None else f"{found.wire / 1e6:.1f}",
            "" if own or not reference.wire else f"{found.wire / reference.wire:.2f}")
    return (str(loop), label, f"{found.speed:.0f}",
            "" if own else f"{found.speed / reference.speed:.2f}", "" if own else f"{reference.cpu / found.cpu:.2f}", over,
            f"{found.peak / 2**20:.0f}", "" if own else f"{found.peak / reference.peak:.2f}",
            *(wire if loop.world > 1 else ("", "")),
            f"{found.first:.1f}", "" if own else f"{found.first / reference.first:.2f}")


def line(cells):
    return "| " + " | ".join(cells) + " |"


def measure(options, say):
    """Runs each loop with its stages in turn and prints each row when it is complete. Returns the rows."""
    table, known = [], {}
    for rows, group in itertools.groupby(chosen(options), key=lambda case: case[0].rows):
        work = tempfile.mkdtemp(prefix="dsj-bench-")
        try:
            subprocess.run([os.path.join(options.bin, "bench_train_loop"), "prepare", work, rows], check=True,
                           stdout=subprocess.DEVNULL)
            for loop, stages in group:
                sides = {None: lambda loop=loop, stages=stages: beside(work, loop, stages[0], options)}
                sides |= {stage: lambda loop=loop, stage=stage: ours(options, work, loop, stage) for stage in stages}
                runs = {stage: [] for stage in sides}
                for _ in range(options.rounds):
                    for stage, side in sides.items():
                        runs[stage].append(side())
                reference = figures(runs[None])
                for stage in sides:
                    found = reference if stage is None else figures(runs[stage])
                    label = (str(stage) if stage is not None else f"DeepSpeed, {stages[0]}" if options.deepspeed
                             else "JAX" if options.jax else "plain loop")
                    known[loop, label] = found
                    compare(loop, found, reference)
                    wide = known.get((dataclasses.replace(loop, precision="fp32"), label)) if loop.precision != "fp32" else None
                    table.append(row(loop, found, reference, wide, label))
                    say(line(table[-1]))
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return table


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        text = lines.read()
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    has = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if re.search(rf"\b{flag}\b", text)]
    return f"{model[1] if model else 'unknown processor'} ({', '.join(has)}), {len(os.sched_getaffinity(0))} cores"


def write(page, program, lines):
    """Writes the lines between this program's marks in a page."""
    marks = (f"<!-- {program} writes from here -->", f"<!-- {program} writes to here -->")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    begin, end = (text.find(mark) for mark in marks)
    if begin < 0 or end < begin:
        sys.exit(f"{program}: {page} has no lines {marks[0]!r} and {marks[1]!r}")
    with open(page, "w", encoding="utf-8") as file:
        file.write(text[:begin] + "\n".join([marks[0], *lines]) + "\n" + text[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--deepspeed", action="store_true")
    side.add_argument("--jax", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write")
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    options.steps = options.steps or (5 if options.quick else 8)
    options.rounds = options.rounds or (1 if options.quick else 2)
    if options.steps <= WARM_UP:
        sys.exit(f"bench_train: --steps {options.steps}: more than the {WARM_UP} of the warm-up")
    if options.list:
        print("\n".join(name(loop, stage) for loop, stages in chosen(options) for stage in stages))
        return 0
    if options.deepspeed:
        options.deepspeed = subprocess.check_output([os.path.join(ROOT, "tests", "oracle", "deepspeed_venv.sh")], text=True).strip()
    if options.jax:
        options.jax = subprocess.check_output([os.path.join(ROOT, "bench", "jax_venv.sh")], text=True).strip()
    before = os.getloadavg()[0]
    print(f"{processor()}; load average {before:.1f}\n{line(head(options))}", flush=True)
    table = measure(options, lambda text: print(text, flush=True))
    if not table:
        sys.exit(f"bench_train: no case has {options.only!r} in its name; --list shows them")
    if options.write:
        about = (f"{processor()}; load average {before:.1f} at the start; {options.steps} steps, {options.rounds} "
                 f"round{'s' * (options.rounds > 1)}.")
        write(options.write, "bench_train.py" + (" --deepspeed" if options.deepspeed else " --jax" if options.jax else ""),
              [about, "", line(head(options)), "|" + "---|" * len(head(options)), *(line(cells) for cells in table)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
