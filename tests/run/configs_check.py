#!/usr/bin/env python3
"""Every file in configs/ is taken by `dsj validate` without an error or an unsupported key; those in configs/cluster/ may
use what has effect in a cluster only (samples_cluster_check.py applies them to one).

Usage: configs_check.py BIN_DIRECTORY CONFIGS_DIRECTORY GTEST_REPORT. Exit 1 when one is not.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, expect  # noqa: E402


def findings_of(dsj, path):
    done = subprocess.run([dsj, "validate", path, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        return [f"exit code {done.returncode}: {done.stderr.decode(errors='replace').strip()}"]
    answer = json.loads(done.stdout)
    there = os.path.basename(os.path.dirname(path)) == "cluster"
    bad = [f"{f['severity']} {f['path']}: {f['message']}" for f in answer["findings"]
           if f["severity"] != "warning" and not (there and "in a cluster only" in f["message"])]
    return bad or ([] if done.returncode == 0 and answer["valid"] else ["not valid, without a finding"])


def check(dsj, path):
    bad = findings_of(dsj, path)
    expect(not bad, "; ".join(bad))


def main():
    dsj, folder, report = os.path.join(sys.argv[1], "dsj"), sys.argv[2], Report("Configs", sys.argv[3])
    names = sorted(os.path.relpath(os.path.join(path, name), folder) for path, _, files in os.walk(folder) for name in files
                   if name.endswith((".json", ".yaml")))
    for name in names:
        report.run(name, lambda name=name: check(dsj, os.path.join(folder, name)))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
