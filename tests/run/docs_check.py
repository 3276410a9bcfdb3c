#!/usr/bin/env python3
"""Runs the ```sh blocks of a page, in order, in one shell each page, in a directory of their own.

Usage: docs_check.py REPOSITORY BUILD_DIRECTORY PAGE GTEST_REPORT. One case per block; exit 1 when a command fails.
DSJ_QUICKSTART_SIZE=tiny is set, so that a page's training takes seconds.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile


def run_block(script, work):
    """Runs one block with `set -e`, and hands its environment on to the next by a file."""
    text = f"set -e\n[ -e .environment ] && . ./.environment\n{script}\nexport -p > .environment\n"
    return subprocess.run(["bash", "-c", text], cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=1800, check=False, env=os.environ | {"DSJ_QUICKSTART_SIZE": "tiny"})


def main():
    repository, build, page, report = (os.path.abspath(argument) for argument in sys.argv[1:5])
    with open(page, encoding="utf-8") as file:
        blocks = re.findall(r"^```sh\n(.*?)^```$", file.read(), re.DOTALL | re.MULTILINE)
    work, cases = tempfile.mkdtemp(prefix="dsj-docs-"), []
    os.symlink(os.path.join(repository, "configs"), os.path.join(work, "configs"))
    os.symlink(build, os.path.join(work, "build"))
    for number, block in enumerate(blocks, 1):
        done = run_block(block, work)
        output = done.stdout.decode(errors="replace")
        case = {"name": f"block{number}", "classname": os.path.basename(page), "result": "COMPLETED"}
        print(f"--- block {number}, exit {done.returncode}\n{block}{output[-3000:]}", flush=True)
        if done.returncode != 0:
            case["failures"] = [{"failure": output[-2000:], "type": ""}]
        cases.append(case)
    with open(report, "w", encoding="utf-8") as out:
        json.dump({"testsuites": [{"name": os.path.basename(page), "testsuite": cases}]}, out)
    shutil.rmtree(work, ignore_errors=True)
    return 1 if not cases or any("failures" in case for case in cases) else 0


if __name__ == "__main__":
    sys.exit(main())
