"""Runs the cases of a check and writes them as a GoogleTest report, which scripts/run_tests.py counts."""
import json
import os
import shutil
import time


class Skip(Exception):
    """Said loudly; no failure."""


def expect(truth, what):
    if not truth:
        raise AssertionError(what() if callable(what) else what)


class Report:
    """The cases of one suite. write() is the exit code of the check: 1 after a failure, or when there was no case at all."""

    def __init__(self, suite, path):
        self._suite, self._path, self._cases = suite, path, []

    def run(self, name, case, tools=()):
        """What case() returns; None when it failed or was skipped. tools: programs that must be on PATH, else it is skipped."""
        begin = time.monotonic()
        try:
            missing = [tool for tool in tools if not shutil.which(tool)]
            if missing:
                names = " and ".join(missing)
                raise Skip(f"{names} not on PATH (tests/cluster/cluster.py build {' '.join(missing)})")
            result = case()
        except Skip as reason:
            self.skipped(name, reason)
            return None
        except Exception as problem:  # noqa: BLE001: every case is reported
            self.failed(name, f"{type(problem).__name__}: {problem}")
            return None
        self._add(name)
        print(f"ok      {name} {time.monotonic() - begin:.1f} s", flush=True)
        return result

    def skipped(self, name, reason):
        self._add(name, result="SKIPPED")
        print(f"result: {self._suite} {name} SKIPPED: {reason}", flush=True)

    def failed(self, name, what):
        self._add(name, failures=[{"failure": what, "type": ""}])
        print(f"FAILED  {name}: {what}", flush=True)

    def write(self):
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
        with open(self._path, "w", encoding="utf-8") as out:
            json.dump({"testsuites": [{"name": self._suite, "testsuite": self._cases}]}, out)
        return 1 if not self._cases or any("failures" in case for case in self._cases) else 0

    def _add(self, name, **more):
        self._cases.append({"name": name, "classname": self._suite, "result": "COMPLETED", **more})
