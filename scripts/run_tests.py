#!/usr/bin/env python3
"""Runs the test programs that CTest knows, cheap labels first, and counts single test cases.

Usage: run_tests.py BUILD_DIRECTORY [NAME_PATTERN]. Exit 0 only if nothing failed and everything was started.
A program's output is shown when it failed; lines that begin with "result: " are always shown.
Tests of the label "nodes" (a cluster with real nodes, which needs root) run only with DSJ_TEST_NODES=1.
DSJ_TEST_DEADLINE, in epoch seconds: what would start later is printed as NOT RUN and fails the run.
"""
import json
import os
import re
import subprocess
import sys
import time

ORDER = ["unit", "engine", "run", "gpu", "cluster", "nodes"]


def tests(build):
    listing = json.loads(subprocess.check_output(["ctest", "--show-only=json-v1"], cwd=build))
    for test in listing["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        label = (properties.get("LABELS") or ["unit"])[0]
        yield ORDER.index(label), test["name"], label, test.get("command"), float(properties.get("TIMEOUT", 300))


def _log(build, name):
    """All that the program printed; a failure shows only its end."""
    return os.path.join(build, "test-reports", name + ".log")


def run(build, name, command, timeout):
    """Returns (passed, failed, skipped, output)."""
    report = os.path.join(build, "test-reports", name + ".json")
    if os.path.exists(report):
        os.remove(report)
    with open(_log(build, name), "w+b") as log:
        try:
            code = subprocess.run(command, cwd=build, stdout=log, stderr=subprocess.STDOUT, timeout=timeout).returncode
        except subprocess.TimeoutExpired:
            code = 124
            os.write(log.fileno(), f"\ntimeout after {timeout:.0f} s\n".encode())
        log.seek(0)
        output = log.read().decode(errors="replace")
    if not os.path.exists(report):
        return (1, 0, 0, output) if code == 0 else (0, 1, 0, output)
    passed = failed = skipped = 0
    for suite in json.load(open(report))["testsuites"]:
        for case in suite["testsuite"]:
            if case.get("failures"):
                failed += 1
            elif case.get("result") == "SKIPPED":
                skipped += 1
            else:
                passed += 1
    if code != 0 and failed == 0:
        failed = 1
    return passed, failed, skipped, output


def main():
    build = os.path.abspath(sys.argv[1])
    pattern = re.compile(sys.argv[2]) if len(sys.argv) > 2 else None
    os.makedirs(os.path.join(build, "test-reports"), exist_ok=True)
    deadline = float(os.environ.get("DSJ_TEST_DEADLINE", "inf"))
    total_passed = total_failed = total_skipped = 0
    not_run = []
    for _, name, label, command, timeout in sorted(tests(build), key=lambda t: (t[0], t[1])):
        if pattern and not pattern.search(name):
            continue
        if label == "nodes" and not os.environ.get("DSJ_TEST_NODES"):
            print(f"        {name} is left to `make test-cluster`", flush=True)
            continue
        if time.time() > deadline:
            print(f"NOT RUN  {name}: the deadline has passed", flush=True)
            not_run.append(name)
            continue
        if not command:
            print(f"FAILED  {name}: its program is not built", flush=True)
            total_failed += 1
            continue
        start = time.time()
        passed, failed, skipped, output = run(build, name, command, timeout)
        seconds = time.time() - start
        verdict = "FAILED" if failed else "ok"
        print(f"{verdict:7} {name} [{label}] {passed} passed, {failed} failed, {skipped} skipped, {seconds:.1f} s",
              flush=True)
        if failed:
            print(output[-20000:], flush=True)
            print(f"        all of it: {_log(build, name)}", flush=True)
        for line in output.splitlines() if not failed else []:
            if line.startswith("result: "):
                print("        " + line, flush=True)
        if skipped and not failed:
            for line in output.splitlines():
                if "Skipped" in line or "SKIPPED" in line or "skipped:" in line:
                    print("        " + line, flush=True)
        total_passed += passed
        total_failed += failed
        total_skipped += skipped
    for name in not_run:
        print(f"NOT RUN: {name}")
    total_failed += len(not_run)
    print(f"{total_passed} passed, {total_failed} failed, {total_skipped} skipped")
    return 1 if total_failed or total_passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
