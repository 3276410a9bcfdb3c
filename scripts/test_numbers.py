#!/usr/bin/env python3
"""Runs every test that compares numbers under each library switch that emulates another processor.

Usage: test_numbers.py BUILD [--two] [--report GTEST_REPORT] [--only REGEX]

Uses all switches of SWITCHES (`make test-numbers`), or with --two the two that change the losses of a short training most
(`make test`). A switch that this processor does not support is printed as LEFT OUT. Runs as many programs at a time as there
are cores, because each keeps little more than one busy. Exit 1 if a test fails, or if no switch changed any loss: then the
switches had no effect.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from cases import Report, expect  # noqa: E402

AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
# The setting, and the flags of /proc/cpuinfo that it needs. ATen and MKL do not check whether the processor supports it.
SWITCHES = [("", set()), ("ATEN_CPU_CAPABILITY=default", set()), ("ATEN_CPU_CAPABILITY=avx2", {"avx2", "fma"}),
            ("ATEN_CPU_CAPABILITY=avx512", AVX512), ("MKL_ENABLE_INSTRUCTIONS=AVX2", {"avx2"}),
            ("MKL_ENABLE_INSTRUCTIONS=SSE4_2", set()), ("MKL_CBWR=COMPATIBLE", set()), ("ONEDNN_MAX_CPU_ISA=AVX2", {"avx2"}),
            ("DSJ_ISA=avx2", {"avx2", "fma"}), ("DSJ_ISA=baseline", set()), ("DSJ_NATIVE_BF16=0", set()),
            ("DSJ_PRODUCTS=own", set()), ("DSJ_PRODUCTS=library", set()),
            ("OMP_NUM_THREADS=1", set()), ("OMP_NUM_THREADS=2", set())]
# The longest programs first.
PROGRAMS = ("train_tests", "golden_table.py", "simulated_tests", "zero_tests", "device_tests", "cuda_kernels_tests",
            "models_tests", "deepspeed_train_tests", "kernels_tests", "optim_tests")
LIMIT_SECONDS = 1800  # per program; the longest takes 2 min on an idle machine
PROBE = "--gtest_filter=Models/ModelOracle.FiftyAdamWSteps/*"


def flags():
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("flags"):
                return set(line.split(":", 1)[1].split())
    return set()


def environment(switch):
    return dict(os.environ, **dict([switch.split("=")] if switch else []))


def call(switch, *command):
    """Returns (exit code, output). A program that hangs is killed and gets the exit code of `timeout`."""
    done = subprocess.run(["timeout", str(LIMIT_SECONDS), *command], env=environment(switch), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def probe(bin_folder, switch):
    """The losses of a short training of each fixture, in full precision, as train_tests prints them."""
    _, output = call(switch, os.path.join(bin_folder, "train_tests"), PROBE)
    return [float(number) for line in re.findall(r"^losses: (.*)$", output, re.MULTILINE) for number in line.split()]


def distances(bin_folder, switches):
    """{switch: largest relative difference of a loss from the machine's own}."""
    own, found = probe(bin_folder, ""), {}
    expect(own, "train_tests printed no losses")
    for switch in switches:
        losses = probe(bin_folder, switch)
        expect(len(losses) == len(own), f"{switch}: {len(losses)} losses, expected {len(own)}")
        found[switch] = max(abs(a - b) / abs(a) for a, b in zip(own, losses))
        print(f"result: {switch:34} moves a loss by up to {found[switch]:.1e}", flush=True)
    return found


def failures_of(output):
    """A test program's failures, without the losses that it prints for other purposes."""
    return "\n".join(line for line in output.splitlines() if not line.startswith("losses: "))[-6000:]


def run(bin_folder, switch, name):
    """Returns the failures (empty if none) and the seconds."""
    begin = time.monotonic()
    if name.endswith(".py"):
        code, output = call(switch, sys.executable, os.path.join(ROOT, "scripts", name), "--bin", bin_folder)
        wrong = "\n".join(line for line in output.splitlines() if "FAILED" in line)
    else:
        code, output = call(switch, os.path.join(bin_folder, name), "--gtest_brief=1")
        wrong = failures_of(output)
    return f"{wrong}\n{name}: exit code {code}" if code else "", time.monotonic() - begin


def judge(switch, runs):
    """Waits for the runs of a switch: {program: future}."""
    bad, seconds = [], 0
    for name, future in runs.items():
        wrong, took = future.result()
        seconds += took
        if wrong:
            print(wrong, flush=True)
            bad.append(name)
    print(f"result: {switch or 'no switch':34} {'FAILED: ' + ', '.join(bad) if bad else 'green'}, "
          f"{seconds:.0f} s of programs", flush=True)
    expect(not bad, ", ".join(bad))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--two", action="store_true")
    parser.add_argument("--report")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    bin_folder = os.path.join(os.path.abspath(options.build), "bin")
    has, chosen = flags(), []
    for switch, needs in SWITCHES:
        if not needs <= has:
            print(f"result: LEFT OUT: {switch}: this processor lacks {', '.join(sorted(needs - has))}", flush=True)
        elif re.search(options.only, switch):
            chosen.append(switch)
    report = Report("Numbers", options.report or os.path.join(options.build, "test-reports", "numbers.json"))
    if options.two or not options.only:
        far = report.run("switches_act", lambda: act(bin_folder, [switch for switch in chosen if switch]))
        if options.two:
            chosen = sorted(far or {}, key=lambda switch: -far[switch])[:2]
    cores = int(subprocess.check_output([os.path.join(ROOT, "scripts", "jobs.sh"), "cores"]))
    with concurrent.futures.ThreadPoolExecutor(cores) as pool:
        runs = {switch: {name: pool.submit(run, bin_folder, switch, name) for name in PROGRAMS} for switch in chosen}
        for switch in chosen:
            report.run(re.sub(r"\W", "_", switch) or "no_switch", lambda: judge(switch, runs[switch]))
    return report.write()


def act(bin_folder, switches):
    far = distances(bin_folder, switches)
    expect(any(far.values()), "no switch changed a loss")
    return far


if __name__ == "__main__":
    sys.exit(main())
