#!/usr/bin/env python3
"""Runs `dsj run` with the settings of every recorded DeepSpeed run and shows where the numbers agree.

Usage: golden_table.py --bin build/bin [--golden DIRECTORY] [--only REGEX] [--write docs/reports/golden.md]
                       [--gtest-report FILE] [--keep DIRECTORY]
Each file of the golden directory gets one row: agrees, differs, or not run, with the missing feature. Settings that
DeepSpeed refused must be refused here too, or run for a reason that the row names (REFUSED_THERE). train_tests makes the
runs with an injected overflow, because it has collectives to inject it with.
Exit 1 if a run differs, or if a run that this version promises (PROMISED) was not made.
"""
import argparse
import array
import datetime
import json
import math
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

STEPS = 20
LIMIT = 1800  # seconds, for a run that hangs
# loss, grad_norm, lr: largest relative difference over the steps; weights: relative L2 over the recorded samples.
# In 16 bits only the loss is strict: recorded runs of different stages differ by 1e-2 in grad_norm and by 2e-3 in
# weights (the gradient of a key's bias is mostly rounding, and Adam turns it into a full step).
EXACT = {"lr": 1e-6, "skips": 0, "scales": 0}
TOLERANCES = {"fp32": {"loss": 1e-5, "grad_norm": 1e-4, "weights": 1e-4, **EXACT},
              "bf16": {"loss": 3e-3, **EXACT},
              "fp16": {"loss": 3e-3, **EXACT}}
# For optimizers that turn rounding into whole steps, DeepSpeed's own runs differ more than that if only rounding changes
# (tests/oracle/deepspeed_spread.py). Our run is one more such run: the limit is four times the largest measured distance.
SPREAD = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "fixtures",
                      "deepspeed_spread.json")
SPREADS = 4
# Runs that DeepSpeed refused because of its environment or version, not because of the config: the start of its message,
# and what we do.
REFUSED_THERE = {
    "Type fp16 is not supported on your device":
        "DeepSpeed has no fp16 on a CPU; the same ds_config as qwen2_fp16_z2_w2, where that was forced",
    "OneBitAdam is not a supported DeepSpeed Optimizer":
        "DeepSpeed has dropped it; compared with 0.18.9 by train_tests Golden.OneBitRuns",
    "This op had not been implemented on CPU backend":
        "DeepSpeed has no CPU kernel for this optimizer without offload",
}
# Runs that this version promises: Qwen2 in fp32, bf16 and fp16, Llama and GPT-2 in fp32, every optimizer and
# schedule, offload.
PROMISED = re.compile(r"qwen2_(fp32_z[0-3]_w[12](_acc4|_clip0|_noclipkey|_smallbuckets|_partition_all|_adamw_default"
                      r"|_adam_wtrue|_adamw_wfalse|_adam_default|_adam_fused_l2|_sgd|_adagrad|_sched_warmup_log"
                      r"|_sched_warmup_linear|_sched_warmupdecay_linear|_sched_warmupcosine|_sched_lrrangetest"
                      r"|_sched_onecycle|_offopt|_offopt_torchadam|_nvmeopt|_offparam)?"
                      r"|bf16_z[0-3]_w[12](_acc4|_acc4_gradfp32|_offopt)?"
                      r"|fp16_z[0-3]_w[12](_inject|_static128)?)"
                      r"|(llama|gpt2)_fp32_z[023]_w[12]")
# Defects of DeepSpeed that we do not copy: the run is compared with another record (see golden/README.md).
COMPARED_WITH = {"qwen2_bf16_z0_w2": ("qwen2_bf16_z1_w2", "stage 0 in 16 bits is compared with stage 1"),
                 "qwen2_fp16_z0_w2": ("qwen2_fp16_z1_w2", "stage 0 in 16 bits is compared with stage 1")}


def safetensors(path):
    """{name: list of float} for the F32, BF16 and F16 tensors of a file."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header, body = json.loads(file.read(size)), file.read()
    out = {}
    for name, info in header.items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        values = array.array("f")
        if info["dtype"] == "F32":
            values.frombytes(body[begin:end])
        elif info["dtype"] == "BF16":
            halves = array.array("H", body[begin:end])
            words = array.array("I", (half << 16 for half in halves))
            values.frombytes(words.tobytes())
        elif info["dtype"] == "F16":
            values.extend(struct.unpack(f"<{(end - begin) // 2}e", body[begin:end]))
        else:
            raise ValueError(f"{path}: {name} has dtype {info['dtype']}")
        out[name] = values
    return out


def exported(directory):
    index = os.path.join(directory, "model.safetensors.index.json")
    names = {"model.safetensors"}
    if os.path.exists(index):
        names = set(json.load(open(index, encoding="utf-8"))["weight_map"].values())
    tensors = {}
    for name in sorted(names):
        tensors.update(safetensors(os.path.join(directory, name)))
    return tensors


def weights_difference(golden, directory):
    tensors, difference, reference = exported(directory), 0.0, 0.0
    for name, stats in golden["final_stats"].items():
        if name not in tensors:
            return math.inf
        values = tensors[name]
        for i, expected in enumerate(stats["sample"]):
            difference += (values[i * stats["every"]] - expected) ** 2
            reference += expected ** 2
    return math.sqrt(difference / reference)


def relative(found, expected):
    if expected is None:
        return 0.0  # DeepSpeed reports none in this setting
    if found is None:
        return math.inf if math.isfinite(expected) else 0.0  # NaN or infinity is null in strict JSON
    if not math.isfinite(expected):
        return math.inf
    return abs(found - expected) / max(abs(expected), 1e-12)


def steps_of(golden):
    """The number of steps: DeepSpeed's, unless a schedule has its own length, which must be the run's by Hugging Face's rule
    and ours."""
    named = golden["ds_config"].get("scheduler", {}).get("params", {}).get("total_num_steps", STEPS)
    return min(STEPS, named)


def compare(golden, directory, steps_run):
    """Largest relative difference per quantity; None if a step is missing."""
    with open(os.path.join(directory, "metrics.jsonl"), encoding="utf-8") as lines:
        steps = [json.loads(line) for line in lines]
    if [step["step"] for step in steps] != list(range(1, steps_run + 1)):
        return None
    found = {key: max(relative(ours[key], theirs[key]) for ours, theirs in zip(steps, golden["steps"]))
             for key in ("loss", "grad_norm", "lr")}
    # Skips and scales must be equal: count the steps that differ.
    pairs = list(zip(steps, golden["steps"]))
    found["skips"] = sum(bool(ours["skipped"]) != bool(theirs["skipped"]) for ours, theirs in pairs)
    found["scales"] = sum(ours["loss_scale"] != (theirs["loss_scale"] or 1) for ours, theirs in pairs)
    if steps_run == len(golden["steps"]):
        found["weights"] = weights_difference(golden, os.path.join(directory, "model"))
    return found


def command(options, golden, config_path, output):
    """The settings of DeepSpeed's bare engine: without a scheduler the rate is constant, and the loss is a mean of means."""
    models = os.path.join(options.golden, "models")
    bare = ["--loss_normalization", "micro-batch"]
    bare += [] if "scheduler" in golden["ds_config"] else ["--lr_scheduler_type", "constant"]
    return [os.path.join(options.bin, "dsj"), "run", f"--nproc_per_node={golden['world']}", "--deepspeed", config_path,
            "--model_name_or_path", os.path.join(models, golden["model"]),
            "--data_path", os.path.join(models, golden["data"]), "--output_dir", output,
            "--max_steps", str(steps_of(golden)), "--shuffle", "False", "--save_strategy", "no", "--logging_steps", "1"] + bare


def reason(done):
    """The last line on stderr with a reason, without the program's name."""
    lines = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"error|unsupported|not supported|refused|expected", line)]
    text = (errors or lines or [f"exit code {done.returncode}"])[0]
    text = re.sub(r"\S*/(golden|dsj-golden)[^/\s]*/", "", text.strip()).replace("|", "/")
    text = re.sub(r"^(dsj run: )?(\S+\.ds_config\.json:\d+:\d+: )?(unsupported: |error: )?", "", text)
    return text if len(text) <= 160 else text[:text.rfind(" ", 0, 157)] + " ..."


def tolerances_of(name):
    limits = dict(TOLERANCES[name.split("_")[1]])
    with open(SPREAD, encoding="utf-8") as file:
        spread = json.load(file)["runs"].get(name, {})
    for key, apart in spread.items():
        limits[key] = max(limits[key], SPREADS * apart)
    return limits


def judge(options, name, golden, work):
    """Returns (verdict, differences or None, note); verdict: agrees, differs, not run."""
    if any("overflow injected" in patch for patch in golden["patched"]):
        return judge_injected(options)
    config_path, output = os.path.join(work, name + ".ds_config.json"), os.path.join(work, name)
    with open(config_path, "w", encoding="utf-8") as out:
        json.dump(golden["ds_config"], out)
    try:
        done = subprocess.run(command(options, golden, config_path, output), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=LIMIT, cwd=work, check=False)
    except subprocess.TimeoutExpired:
        return "differs", None, f"did not end within {LIMIT} s"
    if golden["status"] != "ok":
        there = golden["error"]["first_line"]
        if done.returncode == 1 and b"nothing was started" in done.stderr:
            return "refused", None, f"DeepSpeed: {there[:100]} / here: {reason(done)}".replace("|", "/")
        for message, why in REFUSED_THERE.items():
            if there.startswith(message) and done.returncode == 0:
                return "runs", None, why
        return "differs", None, f"exit code {done.returncode}, but DeepSpeed refuses it: {there[:100]}"
    if done.returncode in (2, 3):
        return "not run", None, reason(done)
    if done.returncode != 0:
        return "differs", None, f"exit code {done.returncode}: {reason(done)}"
    note = ""
    if name in COMPARED_WITH:
        other, note = COMPARED_WITH[name]
        golden = load(options, other)
    steps = steps_of(golden)
    if steps != STEPS:
        note = f"the first {steps} steps: the schedule's own length"
    found = compare(golden, output, steps)
    if found is None:
        return "differs", None, f"metrics.jsonl does not have the {steps} steps"
    tolerances = tolerances_of(name)
    bad = [key for key, limit in tolerances.items() if key in found and not found[key] <= limit]
    return ("differs" if bad else "agrees"), found, "; ".join(([note] if note else []) + [f"{key} is beyond "
                                                              f"{tolerances[key]:g}" for key in bad])


def judge_injected(options):
    """Runs the step-by-step comparison of tests/engine/train/golden_test.cc, which prints one line of differences."""
    program = os.path.join(options.bin, "train_tests")
    if not os.path.exists(program):
        return "not run", None, "train_tests is not built"
    done = subprocess.run([program, "--gtest_filter=Golden.InjectedOverflows"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=LIMIT, check=False,
                          env={**os.environ, "DSJ_SHARED_DIR": os.path.dirname(options.golden)})
    line = re.search(r"golden: (\{.*\})", done.stdout.decode(errors="replace"))
    if line is None:
        return "differs", None, "train_tests Golden.InjectedOverflows printed no comparison"
    found, note = json.loads(line.group(1)), "made by train_tests, which injects the overflows"
    return ("agrees" if done.returncode == 0 else "differs"), found, note


def load(options, name):
    with open(os.path.join(options.golden, "deepspeed_0.19.8", name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def number(found, key):
    return f"{found[key]:.1e}" if found and key in found else ""


def table(rows):
    lines = ["| run | verdict | loss | grad_norm | lr | weights | skips, scales | note |", "|---|---|---|---|---|---|---|---|"]
    for name, verdict, found, note, _ in rows:
        cells = [number(found, key) for key in ("loss", "grad_norm", "lr", "weights")]
        cells.append(f"{found['skips']}, {found['scales']}" if found and "skips" in found else "")
        lines.append(f"| {name} | {verdict} | " + " | ".join(cells) + f" | {note} |")
    return "\n".join(lines)


HEAD = """# Compared with Python DeepSpeed, step by step

How close the numbers are to Python DeepSpeed, for anyone who moves a job from it. `make golden` wrote this page on @DAY@.

Each row is one recorded run of DeepSpeed 0.19.8: 20 optimizer steps, fixed order, tiny models. `dsj run` repeats it
with the same ds_config and number of ranks. Trainer's defaults differ from DeepSpeed's engine in two points, so the command
line sets them: `--loss_normalization micro-batch`, and a constant rate if the ds_config has no scheduler. The table shows
the largest relative difference over the 20 steps, and the relative L2 distance of the final weights over the recorded
samples. "skips, scales" has two counts: steps that only one of the two runs skips, and steps with different loss scales. Both
must be 0.

Tolerances: fp32 loss 1e-5, grad_norm 1e-4, lr 1e-6, weights 1e-4; bf16 and fp16 loss 3e-3, lr 1e-6. In 16 bits
grad_norm and weights are shown without a limit: DeepSpeed's own stages 2 and 3 differ by 9e-3 and 2e-3 there (loss
2e-4), and our weights are rounded once more, to the exported type. If DeepSpeed reports no grad_norm (stage 0), the
difference is 0.

Some optimizers turn rounding errors into whole steps. With these, DeepSpeed's own runs differ when only the instruction set
changes, or when each weight starts at a neighbouring fp32 value (tests/oracle/deepspeed_spread.py). A run here may be four
times as far from the record as those runs are. Largest distances of DeepSpeed from itself over 20 steps:
@SPREAD@.

"refused" means that DeepSpeed and this engine both refuse the ds_config. "runs" means that DeepSpeed refused it because
of the machine or the version it ran on, and this engine runs it; the note says why.

"""


def head():
    with open(SPREAD, encoding="utf-8") as file:
        runs = json.load(file)["runs"]
    told = [f"{name.split('_w2_')[1]} loss {apart['loss']:.1e}, "
            f"grad_norm {apart['grad_norm']:.1e}" for name, apart in runs.items()]
    return HEAD.replace("@SPREAD@", ";\n".join(told)).replace("@DAY@", datetime.date.today().isoformat())


def report(path, rows, seconds):
    cases = []
    for name, verdict, _, note, failed in rows:
        case = {"name": name, "classname": "Golden", "status": "RUN", "time": "0s",
                "result": "SKIPPED" if verdict == "not run" and not failed else "COMPLETED"}
        if failed:
            case["failures"] = [{"failure": f"{verdict}: {note}", "type": ""}]
        cases.append(case)
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"tests": len(cases), "name": "AllTests", "time": f"{seconds:.1f}s",
                   "testsuites": [{"name": "Golden", "tests": len(cases), "testsuite": cases}]}, out)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    shared = os.environ.get("DSJ_SHARED_DIR", os.path.join(root, "..", "shared"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--golden", default=os.path.join(shared, "golden"))
    parser.add_argument("--only", default="")
    parser.add_argument("--write")
    parser.add_argument("--gtest-report")
    parser.add_argument("--keep", help="keeps the runs' directories here")
    options = parser.parse_args()
    options.bin, options.golden = os.path.abspath(options.bin), os.path.abspath(options.golden)
    recorded = os.path.join(options.golden, "deepspeed_0.19.8")
    if not os.path.isdir(recorded):
        print(f"skipped: {recorded} is not there (DSJ_SHARED_DIR names the directory that holds golden/)")
        if options.gtest_report:
            report(options.gtest_report, [("all", "not run", None, "no golden runs here", False)], 0)
        return 0
    work = os.path.abspath(options.keep) if options.keep else tempfile.mkdtemp(prefix="dsj-golden-")
    os.makedirs(work, exist_ok=True)
    rows, start = [], time.time()
    for file in sorted(os.listdir(recorded)):
        name = file.removesuffix(".json")
        if not file.endswith(".json") or not re.search(options.only, name):
            continue
        verdict, found, note = judge(options, name, load(options, name), work)
        failed = verdict == "differs" or (verdict == "not run" and PROMISED.fullmatch(name) is not None)
        rows.append((name, verdict, found, note, failed))
        values = " ".join(f"{key} {value:.1e}" for key, value in (found or {}).items())
        print(f"{'FAILED ' if failed else ''}{verdict:8} {name:44} {values} {note}", flush=True)
    counts = {verdict: sum(row[1] == verdict for row in rows)
              for verdict in ("agrees", "differs", "refused", "runs", "not run")}
    summary = (f"{counts['agrees']} agree, {counts['differs']} differ, {counts['refused']} refused by both, "
               f"{counts['runs']} run only here, {counts['not run']} not run")
    print(f"golden: {summary}, {time.time() - start:.0f} s")
    if options.write:
        with open(options.write, "w", encoding="utf-8") as out:
            out.write(head() + table(rows) + f"\n\n{len(rows)} recorded runs: {summary}.\n")
    if options.gtest_report:
        report(options.gtest_report, rows, time.time() - start)
    if not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if any(row[4] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
