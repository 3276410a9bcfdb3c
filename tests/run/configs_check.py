#!/usr/bin/env python3
"""Every file in configs/ is taken by `dsj validate` without an error or an unsupported key; those in configs/cluster/ may
use what has effect in a cluster only (samples_cluster_check.py applies them to one).

Usage: configs_check.py BIN_DIRECTORY CONFIGS_DIRECTORY GTEST_REPORT. Exit 1 when one is not.
"""
import json
import os
import subprocess
import sys


def findings_of(dsj, path):
    done = subprocess.run([dsj, "validate", path, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        return [f"exit code {done.returncode}: {done.stderr.decode(errors='replace').strip()}"]
    answer = json.loads(done.stdout)
    there = os.path.basename(os.path.dirname(path)) == "cluster"
    bad = [f"{f['severity']} {f['path']}: {f['message']}" for f in answer["findings"]
           if f["severity"] != "warning" and not (there and "in a cluster only" in f["message"])]
    return bad or ([] if done.returncode == 0 and answer["valid"] else ["not valid, without a finding"])


def main():
    dsj, folder, report = os.path.join(sys.argv[1], "dsj"), sys.argv[2], sys.argv[3]
    names = sorted(os.path.relpath(os.path.join(path, name), folder) for path, _, files in os.walk(folder) for name in files
                   if name.endswith((".json", ".yaml")))
    cases = []
    for name in names:
        bad = findings_of(dsj, os.path.join(folder, name))
        print(name, "ok" if not bad else "; ".join(bad))
        case = {"name": name, "classname": "Configs", "result": "COMPLETED"}
        if bad:
            case["failures"] = [{"failure": "; ".join(bad), "type": ""}]
        cases.append(case)
    with open(report, "w", encoding="utf-8") as out:
        json.dump({"testsuites": [{"name": "Configs", "testsuite": cases}]}, out)
    return 1 if not cases or any("failures" in case for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
