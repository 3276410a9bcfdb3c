#!/usr/bin/env python3
"""A rehearsal of scripts/gpu_prove.sh without a GPU: what it packs, that it starts from there alone, that each step and each
case says why it did not run, and that the steps do what they say, with the CPU in the place of a GPU.

Usage: gpu_prove_check.py REPOSITORY BUILD GTEST_REPORT   exit 1 on a failure
"""
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from cases import Report, Skip, expect  # noqa: E402


class Rehearsal:
    def __init__(self, repository, build, folder):
        self.repository, self.build, self.folder = repository, build, folder
        self.script = os.path.join(repository, "scripts/gpu_prove.sh")
        self.carried = os.path.join(folder, "carried")
        sys.path[:0] = [os.path.join(repository, "scripts"), os.path.join(repository, "scripts/gpu_prove_parts")]

    def call(self, *words, environment=None):
        done = subprocess.run([self.script, *words], capture_output=True, text=True, env=environment, timeout=600)
        return done.returncode, done.stdout + done.stderr

    def need_programs(self):
        import carry
        missing = [name for name in carry.PROGRAMS if not os.path.exists(os.path.join(self.build, "bin", name))]
        if missing:
            raise Skip(f"not built: {', '.join(missing)} (without CUDA's compiler there is no libdsj_cuda.so): NOT RUN")


def the_list_names_every_step(rehearsal):
    code, said = rehearsal.call("list")
    expect(code == 0, said)
    for step in ("kernels", "layers", "models", "updates", "objectives", "NCCL, one GPU", "no memory", "stages, one GPU", "stages, two GPUs", "offload", "resume", "memory", "memcheck",
                 "racecheck", "0.5B full", "1.5B LoRA", "7B full, PyTorch"):
        expect(re.search(rf"^  {re.escape(step)}: ", said, re.M), f"no step {step} in {said}")


def it_packs_what_a_bare_machine_lacks(rehearsal):
    rehearsal.need_programs()
    import carry
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = carry.pack(rehearsal.build, rehearsal.carried)
    print(said.getvalue(), end="")
    expect(code == 0, said.getvalue())
    carry.unpack(rehearsal.carried)
    names = os.listdir(os.path.join(rehearsal.carried, "lib"))
    expect(not [name for name in names if carry.THERE.match(name)], f"the machine brings some of {names}")


def refused(rehearsal, said, build=None, **limits):
    """Packs with other limits: it is refused, and the reason is said."""
    import carry
    out = io.StringIO()
    with contextlib.redirect_stdout(out), mock.patch.multiple(carry, **limits) if limits else contextlib.nullcontext():
        code = carry.pack(build or rehearsal.build, os.path.join(rehearsal.folder, "refused"))
    expect(code == 1 and re.search(said, out.getvalue()), f"{code}, not {said}: {out.getvalue()}")


def what_would_not_travel_is_refused(rehearsal):
    """A machine is lent for minutes: what cannot arrive or start there is found here."""
    import carry
    expect(carry.LIMIT == 64 << 20, f"{carry.LIMIT} bytes travel at most")
    refused(rehearsal, "not in .*: .*dsj-train.*\n.*build them: scripts/build.sh", build=rehearsal.folder)
    rehearsal.need_programs()
    refused(rehearsal, r"\d+ MiB travel, the limit is 8", LIMIT=8 << 20)
    refused(rehearsal, r"dsj-train asks for GLIBC_2\.", MOST={"GLIBC": (2, 2), "GLIBCXX": (9,)})


def a_call_has_time_for_its_steps(_rehearsal):
    """Two calls, less than ten minutes each, even if each step takes all that it is not begun without."""
    import gpu_prove
    for part, steps in gpu_prove.PARTS.items():
        wanted = sum(step.seconds for step in steps)
        print(f"result: gpu_prove {part}: {len(steps)} steps, at most {wanted} s expected")
        expect(wanted <= 60 * gpu_prove.MINUTES < 600, f"{part}: {wanted} s")
    expect(list(gpu_prove.PARTS) == ["tests", "bench"], "two calls")


def each_program_finds_its_libraries_there(rehearsal):
    """With nothing but what is packed and what comes with torch."""
    rehearsal.need_programs()
    from machine import Machine
    machine = Machine(rehearsal.carried)
    for name in os.listdir(machine.bin):
        if name.endswith(".so"):
            continue
        seen = subprocess.run(["env", "-i", f"LD_LIBRARY_PATH={machine.environment['LD_LIBRARY_PATH']}", "ldd",
                               os.path.join(machine.bin, name)], capture_output=True, text=True).stdout
        lost = re.findall(r"(\S+) => not found", seen)
        expect(not lost, f"{name} lacks {lost}")
        for library, path in re.findall(r"(\S+) => (/\S+)", seen):
            expect(library not in os.listdir(os.path.join(rehearsal.carried, "lib")) or path.startswith(rehearsal.carried),
                   f"{name} takes {path}, which a bare machine may lack")
    machine.close()


def the_plugins_symbols_are_in_gpu_tests(rehearsal):
    """dsj-train's are checked by cuda_check.py; the plugin calls back into whoever opens it."""
    rehearsal.need_programs()

    def symbols(name, *words):
        path = os.path.join(rehearsal.build, "bin", name)
        text = subprocess.run(["nm", "-D", *words, path], capture_output=True, text=True, check=True).stdout
        return {line.split()[-1].split("@")[0] for line in text.splitlines()}
    wanted = {name for name in symbols("libdsj_cuda.so", "--undefined-only") if "3dsj" in name}
    missing = wanted - symbols("gpu_tests", "--defined-only")
    expect(wanted and not missing, f"gpu_tests lacks {sorted(missing)}")


def every_step_says_why_it_did_not_run(rehearsal):
    rehearsal.need_programs()
    from machine import Machine
    machine = Machine(rehearsal.carried)
    gpus = machine.gpus
    machine.close()
    if gpus:
        raise Skip("this machine has GPUs: run scripts/gpu_prove.sh itself")
    for part in ("tests", "bench"):
        out = os.path.join(rehearsal.folder, "out")
        code, said = rehearsal.call(part, out, "--carried", rehearsal.carried)
        expect(code == 0, said)
        with open(os.path.join(out, f"gpu_{part}.json"), encoding="utf-8") as file:
            steps = json.load(file)["steps"]
        expect(steps, "no step")
        for step in steps:
            expect(step["result"] == "skipped" and "NOT RUN" in step["said"], f"{step}")
        with open(os.path.join(out, f"gpu_{part}.md"), encoding="utf-8") as file:
            table = file.read()
        expect(table.count("NOT RUN") == len(steps) and "| step | result |" in table, table)


def each_case_says_why_it_did_not_run(rehearsal):
    rehearsal.need_programs()
    from machine import Machine
    machine = Machine(rehearsal.carried)
    if machine.gpus:
        raise Skip("this machine has GPUs: run scripts/gpu_prove.sh itself")
    said = machine.run(machine.program("gpu_tests"))
    machine.close()
    # Each with its own reason: a case that has none would be found by nobody.
    cases = dict(re.findall(r"^\[ RUN      \] (\S+)\n((?:(?!^\[ ).*\n)*)\[  SKIPPED \]", said, re.M))
    silent = [name for name, text in cases.items() if "NOT RUN: " not in text or "the job asks for GPUs, and no CUDA driver" not in text]
    expect(cases and not silent, f"{silent} of {len(cases)}")
    ran = re.findall(r"^\[       OK \] (\S+)", said, re.M)
    print(f"result: gpu_tests: {len(cases)} cases want a GPU and say so, {len(ran)} ran: {' '.join(ran)}")


def the_cases_of_models_run(rehearsal):
    """With the CPU in the place of a GPU the numbers are the same; a fixture that a case cannot take is found here."""
    rehearsal.need_programs()
    from machine import Machine
    machine = Machine(rehearsal.carried)
    said = machine.run(machine.program("gpu_tests"), "--gtest_filter=*EveryModel*:*EveryUpdate*:SeveralProducts.*",
                       more={"DSJ_GPU_STAND_IN": "cpu", "OMP_NUM_THREADS": "1"})
    machine.close()
    passed = len(re.findall(r"^\[ +OK \]", said, re.M))
    apart = re.findall(r"^result: (.*): losses (?!0\.0e\+00, norms 0\.0e\+00)", said, re.M)
    expect(passed > 3 * 100 and not apart, f"{passed} cases; other numbers on the same CPU: {apart}")
    print(f"result: gpu_tests: {passed} cases of models and updates rehearsed")


class StandIn(contextlib.ExitStack):
    """The CPU as two GPUs of a machine: steps run as they would there, on small models. A job for a GPU runs on the CPU, so
    what is compared is the same bits, and every difference is a fault of a step. `wrong`: what to make of such a job."""

    def __init__(self, rehearsal, wrong=lambda manifest: None):
        super().__init__()
        rehearsal.need_programs()
        import bench_steps
        import jobs
        import test_steps
        from machine import Machine
        self.machine = Machine(rehearsal.carried)
        self.callback(self.machine.close)
        if self.machine.gpus:
            raise Skip("this machine has GPUs: run scripts/gpu_prove.sh itself")
        self.machine.gpus = 2
        self.machine.facts = lambda: {"GPUs": "NVIDIA H200, 143771 MiB, 580.0"}
        make, small = jobs.job, jobs.SIZES["small"]

        def job(*words, device="cuda", **more):
            made = make(*words, device="cpu", **more)
            if device == "cuda":
                wrong(made)
            return made
        self.enter_context(mock.patch.object(jobs, "job", job))
        self.enter_context(mock.patch.dict(jobs.SIZES, {name: small for name in ("0.5B", "1.5B", "7B")}))
        self.enter_context(mock.patch.multiple(test_steps, BOUNDS={"fp32": 2e-4, "bf16": 2e-2}, STAGES=(3,), ROW=64))
        self.enter_context(mock.patch.multiple(bench_steps, ROW=16))

    def run(self, part, name):
        import gpu_prove
        step = next(step for step in gpu_prove.PARTS[part] if step.name == name)
        row = gpu_prove.run_step(step, self.machine, time.monotonic() + 500)
        print(f"  {name}: {row['result']} {row['said'] or row['figures']}")
        return row


def each_step_does_what_it_says(rehearsal):
    with StandIn(rehearsal) as stand_in:
        for name, figures in (("stages, one GPU", 2), ("LoRA, recompute", 4), ("objectives", 4), ("resume", 1)):
            row = stand_in.run("tests", name)
            expect(row["result"] == "ok" and list(row["figures"].values()) == ["0.0e+00"] * figures, row)
        for name in ("stages, two GPUs", "offload"):  # stage 3 adds up gradients in another order than stage 0
            row = stand_in.run("tests", name)
            expect(row["result"] == "ok" and len(row["figures"]) == 2, row)
        row = stand_in.run("tests", "memory")
        expect(row["result"] == "ok" and {"parameters", "gradients", "optimizer"} <= set(row["figures"]), row)
        for name in ("0.5B full", "7B LoRA"):
            row = stand_in.run("bench", name)
            expect(row["result"] == "ok" and row["figures"]["tokens/s"] > 0 and row["figures"]["computed tokens/s"] > 0, row)


def a_wrong_gpu_fails_the_steps(rehearsal):
    """Fault: another learning rate where a GPU was asked for. Losses drift apart, and a step that would not see it shows nothing."""
    def faster(manifest):
        manifest["spec"]["training"]["learningRate"] *= 2
        manifest["spec"]["deepspeed"]["config"]["optimizer"]["params"]["lr"] *= 2
    with StandIn(rehearsal, faster) as stand_in:
        row = stand_in.run("tests", "stages, one GPU")
        expect(row["result"] == "FAILED" and "from the CPU's" in row["said"], row)


def the_plain_loop_trains_the_same_model(rehearsal):
    """bench/torch_loop.py on a small shape: as many parameters as ours, and as many trained ones of rank 16."""
    python = os.path.join(os.environ.get("DSJ_CACHE") or os.path.expanduser("~/.cache/dsj"), "venv-oracle-torch/bin/python")
    if not os.path.exists(python):
        raise Skip(f"{python} is not there: NOT RUN (make oracle makes it)")
    import jobs
    shape = os.path.join(rehearsal.folder, "shape.json")
    with open(shape, "w", encoding="utf-8") as file:
        json.dump(jobs.SIZES["small"], file)
    tensors = jobs.tensors_of(jobs.SIZES["small"])
    whole = sum(sizes[0] * (sizes + [1])[1] for sizes in tensors.values())
    adapters = sum(16 * sum(sizes) for name, sizes in tensors.items() if "_proj.weight" in name)
    for lora, trained in ((0, whole), (16, adapters)):
        said = subprocess.run([python, os.path.join(rehearsal.repository, "bench/torch_loop.py"), "--shape", shape, "--row", "16",
                               "--steps", "2", "--warm-up", "1", "--lora", str(lora), "--device", "cpu"],
                              capture_output=True, text=True, timeout=300, check=True).stdout
        found = json.loads(said.splitlines()[-1])
        expect(found["parameters"] == whole + (lora and adapters) and found["trained"] == trained, f"{found}, not {whole}, {trained}")
        expect(found["tokens/s"] > 0 and 5 < found["loss"] < 10, found)


def a_shortage_is_read_as_it_is_said(_rehearsal):
    import test_steps
    said = ("out of GPU memory: gradients asked for 2.0 GiB, 512.0 MiB of 40.0 GiB are free",
            "dsj plan: zero_optimization.stage 2 makes it fit")  # engine/train/inputs/out_of_memory.h
    expect(test_steps.shortage_of("\n".join(said))["class"] == "gradients", "its class")
    for text in ("", *said):
        try:
            test_steps.shortage_of(text)
        except AssertionError:
            continue
        raise AssertionError(f"passes: {text}")


def what_has_no_time_is_not_run(rehearsal):
    code, said = rehearsal.call("tests", os.path.join(rehearsal.folder, "late"), "--minutes", "0", "--carried", rehearsal.carried)
    expect(code == 0 and len(re.findall(r"^NOT RUN ", said, re.M)) == 15, said)


def main():
    repository, build, report_path = sys.argv[1:4]
    report = Report("GpuProve", report_path)
    with tempfile.TemporaryDirectory() as folder:
        rehearsal = Rehearsal(repository, build, folder)
        for case in (the_list_names_every_step, it_packs_what_a_bare_machine_lacks, what_would_not_travel_is_refused,
                     a_call_has_time_for_its_steps, each_program_finds_its_libraries_there, the_plugins_symbols_are_in_gpu_tests,
                     every_step_says_why_it_did_not_run, each_case_says_why_it_did_not_run, the_cases_of_models_run, each_step_does_what_it_says,
                     a_wrong_gpu_fails_the_steps, the_plain_loop_trains_the_same_model, a_shortage_is_read_as_it_is_said,
                     what_has_no_time_is_not_run):
            report.run(case.__name__, lambda case=case: case(rehearsal))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
