"""The first call tests whether a GPU computes correctly: kernels, layers, whole runs of each stage, offload, resume, memory."""
import os
import re
import shutil

import jobs
from machine import Skip, Step

# Tolerance for losses compared with the CPU; ten times that for gradient norms. fp32 sums in another order; bf16 also rounds
# results to 8 bits in another order.
BOUNDS = {"fp32": 2e-4, "bf16": 2e-2}
STAGES = (0, 1, 2, 3)
ROW = 1024
# Port tests that end within a minute under a checker of every memory access.
SMALL = "*RmsNorm/*BFloat16:*Activations/*BFloat16:*CrossEntropy*/*BFloat16:*Sums/*Float:*UpdatesOfMany*/*Float"


def gtest(machine, *words, through=()):
    """Runs cases of gpu_tests; returns how many passed. Skip, with the first reason, if all were skipped."""
    said = machine.run(*through, machine.program("gpu_tests"), *words)
    passed, skipped = len(re.findall(r"^\[ +OK \]", said, re.M)), len(re.findall(r"^\[ +SKIPPED \] \S+ \(", said, re.M))
    if not passed:
        reason = re.search(r"NOT RUN: [^\n]*", said)
        raise Skip(reason[0] if reason else f"{skipped} cases are skipped")
    assert not skipped, f"{skipped} of {passed + skipped} cases are skipped"
    return {"cases": passed}


def kernels(machine):
    return gtest(machine, "--gtest_filter=*PortContract*:LambCoefficients*")


def layers(machine):
    return gtest(machine, "--gtest_filter=*OnAGpu*")


def nccl(machine):
    return gtest(machine, "--gtest_filter=NcclOfOneRank.*")


def sanitizer(tool):
    def run(machine):
        machine.need_gpus()
        found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(found):
            raise Skip("NOT RUN: compute-sanitizer is not on this machine")
        return gtest(machine, f"--gtest_filter={SMALL}", through=(found, "--tool", tool, "--error-exitcode", "9"))
    return run


def small(machine, name, **more):
    folder = machine.folder("run-" + name)
    rows = jobs.make_rows(machine, 64, (24, 120), 2048)
    return jobs.job(jobs.make_model(machine, "small"), rows, folder, **more)


def on_cpu(machine, name, **more):
    """The steps of the same job on the CPU, equal for each stage; run once."""
    cache = machine.__dict__.setdefault("steps_on_cpu", {})
    key = repr(sorted(more.items()))
    if key not in cache:
        cache[key] = jobs.run(machine, small(machine, name + "-cpu", device="cpu", **more))
    return cache[key]


def compare(machine, name, *, slots=1, zero=None, precision="bf16", training=None):
    machine.need_gpus(slots)
    more = {"precision": precision, "training": training, "slots": slots}
    there, here = jobs.run(machine, small(machine, name, zero=zero, **more)), on_cpu(machine, name, **more)
    apart = jobs.apart(jobs.column(there, "loss"), jobs.column(here, "loss"))
    assert apart <= BOUNDS[precision], f"losses are {apart:.1e} from the CPU's: {jobs.column(there, 'loss')}"
    norms = jobs.apart(jobs.column(there, "grad_norm"), jobs.column(here, "grad_norm"))
    assert norms <= 10 * BOUNDS[precision], f"gradient norms are {norms:.1e} from the CPU's"
    return {"apart": f"{apart:.1e}"}


def stages(slots):
    def run(machine):
        figures = {}
        for precision in BOUNDS:
            for stage in STAGES:
                found = compare(machine, f"{precision}-{stage}", slots=slots, zero={"stage": stage}, precision=precision)
                figures[f"{precision} stage {stage}"] = found["apart"]
        return figures
    return run


def offload(machine):
    """With one rank, only offloaded parameters make stage 3 gather."""
    cpu = {"device": "cpu"}
    return {"optimizer": compare(machine, "offload-2", zero={"stage": 2, "offload_optimizer": cpu})["apart"],
            "parameters": compare(machine, "offload-3", zero={"stage": 3, "offload_optimizer": cpu,
                                                              "offload_param": cpu})["apart"]}


def lora_and_recompute(machine):
    lora = {"lora": {"r": 8, "targetModules": "all-linear"}}
    return {"LoRA": compare(machine, "lora", training=lora)["apart"],
            "recompute": compare(machine, "recompute", training={"gradientCheckpointing": True})["apart"]}


def resume(machine):
    machine.need_gpus()
    whole = jobs.column(jobs.run(machine, small(machine, "whole", steps=6)), "loss")
    first = small(machine, "resume", steps=3, training={"saveStrategy": "steps", "saveSteps": 3})
    jobs.run(machine, first)
    first["spec"]["training"]["maxSteps"] = 6
    again = jobs.column(jobs.run(machine, first), "loss")
    assert len(again) >= 3, f"{len(again)} steps"
    apart = jobs.apart(again[-3:], whole[-3:])
    assert apart < 1e-3, f"{again} and {whole}"
    return {"apart": f"{apart:.1e}"}


def memory(machine):
    """Compares the plan's memory with the maximum that the driver shows during the run."""
    machine.need_gpus()
    manifest = jobs.job(jobs.make_large_model(machine, "0.5B"), jobs.make_rows(machine, 64, (ROW, ROW), jobs.SIZES["0.5B"]["vocabulary"]),
                        machine.folder("run-memory"), micro=4, steps=4, training={"maxSeqLength": ROW})
    planned = jobs.plan(machine, manifest)
    assert planned, "dsj plan refuses it"
    steps = jobs.run(machine, manifest)
    status = os.path.join(manifest["spec"]["training"]["outputDir"], "status.yaml")
    with open(status, encoding="utf-8") as file:
        peaks = dict(re.findall(r"^ *(parameters|gradients|optimizer|buckets|activations): (\d+)", file.read(), re.M))
    figures, wrong = {"steps": len(steps)}, []
    for name, peak in peaks.items():
        want = planned["memory"]["bytesPerRank"][name]
        figures[name] = f"{int(peak) / 2**20:.0f} of {want / 2**20:.0f} MiB"
        if name != "activations" and abs(int(peak) - want) > 0.05 * max(want, 1 << 20):
            wrong.append(f"{name} {figures[name]}")
    assert peaks, f"{status} has no peaks"
    assert not wrong, f"more than 5 % from the plan: {', '.join(wrong)}"
    return figures


def shortage_of(said):
    """Checks the error of a run that is out of memory. AssertionError if there is none or it does not help."""
    found = re.search(r"out of GPU memory: (\w+) asked for ([\d.]+ \w+), ([\d.]+ \w+) of ([\d.]+ \w+) are free", said)
    assert found, f"no class of memory and no bytes: {said[-1500:]}"
    assert "dsj plan: " in said, f"not what the plan would change: {said[-1500:]}"
    return {"class": found[1], "asked for": found[2], "free": f"{found[3]} of {found[4]}"}


def no_memory(machine):
    """Uses 512 rows at a time, whose activations exceed the memory of any GPU."""
    machine.need_gpus()
    rows = jobs.make_rows(machine, 512, (ROW, ROW), jobs.SIZES["0.5B"]["vocabulary"])
    manifest = jobs.job(jobs.make_large_model(machine, "0.5B"), rows, machine.folder("run-no-memory"), micro=512, steps=1,
                        accumulation=1, training={"maxSeqLength": ROW})
    path = machine.write(os.path.join(machine.work, "no_memory.yaml"), manifest)
    return shortage_of(machine.run(machine.program("dsj"), "run", path, check=False))


STEPS = [
    Step("kernels", "each kernel of ours equals its oracle at odd sizes, in three types", 30, kernels),
    Step("layers", "a micro-step and an update of six models equal the CPU's, in fp32 and bf16", 30, layers),
    Step("NCCL, one GPU", "each operation over NCCL, and steps of stage 3, in a world of one rank", 20, nccl),
    Step("stages, one GPU", "the losses of stages 0 to 3 are the CPU's", 70, stages(1)),
    Step("offload", "optimizer in host memory; stage 3 with parameters in host memory", 30, offload),
    Step("LoRA, recompute", "adapters, and activations computed again", 25, lora_and_recompute),
    Step("resume", "a run that stops at a checkpoint goes on as if it had not", 25, resume),
    Step("stages, two GPUs", "the losses of stages 0 to 3 over NCCL are the CPU's", 80, stages(2)),
    Step("memory", "bytes by class are those of dsj plan", 45, memory),
    Step("no memory", "a run that does not fit ends with the class of memory, the bytes and what dsj plan would change", 25, no_memory),
    Step("memcheck", "compute-sanitizer finds no access out of bounds in our kernels", 40, sanitizer("memcheck")),
    Step("racecheck", "compute-sanitizer finds no race in shared memory", 40, sanitizer("racecheck")),
]
