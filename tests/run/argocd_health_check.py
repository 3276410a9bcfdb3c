#!/usr/bin/env python3
"""The health script for Argo CD in docs/cluster.md, run by a Lua interpreter against the statuses that the operator's test writes.

Usage: argocd_health_check.py REPOSITORY GTEST_REPORT. Exit 1 on a failure. Needs lua5.4 or lua on PATH; else it is skipped, loudly.
"""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, Skip, expect  # noqa: E402


def lua(value):
    """A value of JSON as Lua has it, as Argo CD gives objects to a script."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{lua(name)}] = {lua(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(lua(one) for one in value) + "}"
    if value is None:
        return "nil"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return "\"" + "".join(f"\\{byte:03d}" for byte in value.encode()) + "\""


class Health:
    def __init__(self, repository):
        with open(os.path.join(repository, "docs/cluster.md"), encoding="utf-8") as file:
            scripts = re.findall(r"^```lua\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
        expect(len(scripts) == 1, f"docs/cluster.md has {len(scripts)} scripts")
        self.script = scripts[0]
        with open(os.path.join(repository, "tests/fixtures/readiness.json"), encoding="utf-8") as file:
            self.stages = json.load(file)
        self.interpreter = next(filter(None, map(shutil.which, ("lua5.4", "lua"))), None)

    def of(self, thing):
        if not self.interpreter:
            raise Skip("no lua5.4 on PATH (apt-get install lua5.4)")
        program = (f"local function health(obj)\n{self.script}\nend\nlocal hs = health({lua(thing)})\n"
                   "assert(hs.message == nil or type(hs.message) == 'string')\nio.write(hs.status)\n")
        done = subprocess.run([self.interpreter, "-"], input=program, capture_output=True, text=True, check=False)
        expect(done.returncode == 0, done.stderr)
        return done.stdout

    def statuses(self):
        for stage in self.stages:
            found = self.of(stage["object"])
            expect(found == stage["argoCd"], f"{stage['stage']}: {found}, not {stage['argoCd']}")
        print(f"result: Argo CD: {len(self.stages)} stages of a job")

    def fresh(self):
        for thing in ({"metadata": {"generation": 1}}, {"metadata": {"generation": 1}, "status": {}},
                      {"metadata": {"generation": 1}, "status": {"observedGeneration": -1}},
                      {"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "conditions": []}}):
            expect(self.of(thing) == "Progressing", f"{thing}: {self.of(thing)}")


def main():
    health, report = Health(sys.argv[1]), Report("ArgoCdHealth", sys.argv[2])
    for case in (health.statuses, health.fresh):
        report.run(case.__name__, case)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
