#!/usr/bin/env python3
"""A rehearsal of scripts/gpu_prove.sh without a GPU: what it packs, that it starts from there alone, and that each step says
why it did not run.

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

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from cases import Report, Skip, expect  # noqa: E402


class Rehearsal:
    def __init__(self, repository, build, folder):
        self.repository, self.build, self.folder = repository, build, folder
        self.script = os.path.join(repository, "scripts/gpu_prove.sh")
        self.carried = os.path.join(folder, "carried")
        sys.path.insert(0, os.path.join(repository, "scripts/gpu_prove_parts"))

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
    for step in ("kernels", "layers", "stages, one GPU", "stages, two GPUs", "offload", "resume", "memory", "memcheck",
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
    names = os.listdir(os.path.join(rehearsal.carried, "lib"))
    expect(not [name for name in names if carry.THERE.match(name)], f"the machine brings some of {names}")


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


def what_has_no_time_is_not_run(rehearsal):
    code, said = rehearsal.call("tests", os.path.join(rehearsal.folder, "late"), "--minutes", "0", "--carried", rehearsal.carried)
    expect(code == 0 and len(re.findall(r"^NOT RUN ", said, re.M)) == 10, said)


def main():
    repository, build, report_path = sys.argv[1:4]
    report = Report("GpuProve", report_path)
    with tempfile.TemporaryDirectory() as folder:
        rehearsal = Rehearsal(repository, build, folder)
        for case in (the_list_names_every_step, it_packs_what_a_bare_machine_lacks, each_program_finds_its_libraries_there,
                     the_plugins_symbols_are_in_gpu_tests, every_step_says_why_it_did_not_run, what_has_no_time_is_not_run):
            report.run(case.__name__, lambda case=case: case(rehearsal))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
