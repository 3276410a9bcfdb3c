"""The first call tests whether a GPU computes correctly: kernels, layers, whole runs of each stage, offload, resume, memory."""
import os
import re
import shutil
import subprocess
import sys
from concurrent import futures

import jobs
from machine import Skip, Step, text_of

# Tolerance for losses compared with the CPU; ten times that for gradient norms. fp32 sums in another order; bf16 also rounds
# results to 8 bits in another order.
BOUNDS = {"fp32": 2e-4, "bf16": 2e-2}
STAGES = (0, 1, 2, 3)
ROW = 1024
# Port tests that end within a minute under a checker of every memory access.
SMALL = "*RmsNorm/*BFloat16:*Activations/*BFloat16:*CrossEntropy*/*BFloat16:*Sums/*Float:*UpdatesOfMany*/*Float"


def gtest(machine, cases, *, shards=1, through=()):
    """Runs cases of gpu_tests in processes side by side: after an error of the GPU a process does nothing more. Returns how
    many passed. Skip, with the first reason, if all were skipped."""
    def shard(index):
        return machine.call(*through, machine.program("gpu_tests"), f"--gtest_filter={cases}", more={
            "GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(index), "OMP_NUM_THREADS": "2"})
    with futures.ThreadPoolExecutor(shards) as pool:
        ended = list(pool.map(shard, range(shards)))
    said = "\n".join(text for text, _ in ended)
    passed, skipped = len(re.findall(r"^\[ +OK \]", said, re.M)), len(re.findall(r"^\[ +SKIPPED \] \S+ \(", said, re.M))
    failed = re.findall(r"^\[ +FAILED +\] (\S+?),? .*\(\d+ ms\)$", said, re.M)
    broken = [text[-1500:] for text, code in ended if code != 0]
    assert not broken, f"{passed} passed, {len(failed)} failed: {' '.join(failed)}; {broken[0]}"
    if not passed:
        reason = re.search(r"NOT RUN: [^\n]*", said)
        raise Skip(reason[0] if reason else f"{skipped} cases are skipped")
    assert not skipped, f"{skipped} of {passed + skipped} cases are skipped"
    return {"cases": passed}


def kernels(machine):
    return gtest(machine, "*PortContract*:LambCoefficients*")


def layers(machine):
    return gtest(machine, "*OnAGpu*:SeveralProducts.*")


def models(machine):
    return gtest(machine, "*EveryModel*", shards=6)


def updates(machine):
    return gtest(machine, "*EveryUpdate*", shards=4)


def nccl(machine):
    return gtest(machine, "NcclOfOneRank.*")


def sanitizer(tool):
    def run(machine):
        machine.need_gpus()
        found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(found):
            raise Skip("NOT RUN: compute-sanitizer is not on this machine")
        return gtest(machine, SMALL, through=(found, "--tool", tool, "--error-exitcode", "9"))
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


def compare(machine, name, *, slots=1, zero=None, precision="bf16", training=None, **more):
    machine.need_gpus(slots)
    more |= {"precision": precision, "training": training, "slots": slots}
    return compare_steps(jobs.run(machine, small(machine, name, zero=zero, **more)), on_cpu(machine, name, **more), precision)


def compare_steps(there, here, precision):
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
    """Also a base in 4 bits, and micro-batches that the layers take in pieces."""
    lora = {"r": 8, "targetModules": "all-linear"}
    again = {"gradientCheckpointing": True}
    return {"LoRA": compare(machine, "lora", training={"lora": lora})["apart"],
            "QLoRA": compare(machine, "qlora", training={"lora": lora | {"loadIn4bit": True}})["apart"],
            "recompute": compare(machine, "recompute", training=again)["apart"],
            "in pieces": compare(machine, "pieces", training=again, micro=160, steps=2, accumulation=1)["apart"]}


def objectives(machine):
    """Rows of text, whose loss is of whole answers."""
    machine.need_gpus()
    figures = {}
    for name, (model, rows) in jobs.make_texts(machine).items():
        steps = [jobs.run(machine, jobs.job(model, rows, machine.folder(f"run-{name}-{device}"), device=device, steps=4, micro=8,
                                            training={"objective": name})) for device in ("cuda", "cpu")]
        figures[name] = compare_steps(*steps, "bf16")["apart"]
    return figures


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
    assert re.search(r"dsj plan(:| finds)", said), f"not what the plan would change: {said[-1500:]}"
    return {"class": found[1], "asked for": found[2], "free": f"{found[3]} of {found[4]}"}


HOLD = "import sys, torch; held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device='cuda'); print('held', flush=True); input()"


def large_batch(machine, micro):
    rows = jobs.make_rows(machine, 512, (ROW, ROW), jobs.SIZES["0.5B"]["vocabulary"])
    manifest = jobs.job(jobs.make_large_model(machine, "0.5B"), rows, machine.folder("run-no-memory"), micro=micro, steps=1,
                        accumulation=1, training={"maxSeqLength": ROW})
    path = machine.write(os.path.join(machine.work, "no_memory.yaml"), manifest)
    return machine.run(machine.program("dsj"), "run", path, check=False)


def no_memory(machine):
    """A batch that no GPU can hold is refused before the start; one that fits into a GPU of which another process holds most
    ends with an error that names the memory."""
    machine.need_gpus()
    refused = large_batch(machine, 512)
    assert re.search(r"DoesNotFit: 1 rank needs [\d.]+ GiB of device memory, this GPU's memory is", refused), refused[-1500:]
    clean = os.environ | {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    total = int(text_of("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits").split()[0]) << 20
    with subprocess.Popen([sys.executable, "-c", HOLD, str(total - (6 << 30))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, env=clean) as holder:
        try:
            assert holder.stdout.readline() == "held\n", "no process holds memory"
            said = large_batch(machine, 16)
        finally:
            holder.stdin.close()
    return shortage_of(said)


STEPS = [
    Step("kernels", "each kernel of ours equals its oracle at odd sizes, in three types", 15, kernels),
    Step("layers", "a micro-step and an update of six models equal the CPU's, in fp32 and bf16", 10, layers),
    Step("models", "four steps of every fixture of a model type equal the CPU's, in fp32 and bf16", 30, models),
    Step("updates", "every optimizer, LoRA, DoRA, QLoRA and offload: four steps equal the CPU's", 15, updates),
    Step("NCCL, one GPU", "each operation over NCCL, and steps of stage 3, in a world of one rank", 15, nccl),
    Step("stages, one GPU", "the losses of stages 0 to 3 are the CPU's", 45, stages(1)),
    Step("offload", "optimizer in host memory; stage 3 with parameters in host memory", 15, offload),
    Step("LoRA, recompute", "adapters, a base in 4 bits, activations computed again, whole and in pieces", 35, lora_and_recompute),
    Step("objectives", "the losses of DPO, ORPO, KTO and a reward model are the CPU's", 25, objectives),
    Step("resume", "a run that stops at a checkpoint goes on as if it had not", 15, resume),
    Step("stages, two GPUs", "the losses of stages 0 to 3 over NCCL are the CPU's", 80, stages(2)),
    Step("memory", "bytes by class are those of dsj plan", 20, memory),
    Step("no memory", "a run that does not fit is refused, or ends with the class of memory, the bytes and what to change", 25, no_memory),
    Step("memcheck", "compute-sanitizer finds no access out of bounds in our kernels", 20, sanitizer("memcheck")),
    Step("racecheck", "compute-sanitizer finds no race in shared memory", 25, sanitizer("racecheck")),
]
