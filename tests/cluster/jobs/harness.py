"""Runs cases on one cluster and reports them; what several cases look at."""
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
CLUSTER = os.path.dirname(HERE)
sys.path[:0] = [CLUSTER, os.path.join(CLUSTER, "../support")]

from cases import Report, expect  # noqa: E402
from kube import eventually  # noqa: E402
import world as worlds  # noqa: E402


NEVER, GOES_ON = "-", "goes on"


@dataclass
class Fault:
    """A row of docs/reports/faults.md. named: seconds from the fault until the job's status says what happened; stepping: until training
    is behind the step at which it struck. NEVER: it does not happen; GOES_ON: training never stopped."""
    fault: str
    what: str
    charged: str
    named: float | str
    stepping: float | str

    def row(self):
        words = [time if isinstance(time, str) else f"{time:.1f}" for time in (self.named, self.stepping)]
        return " | ".join([self.fault, self.what, self.charged, *words])


class Lines:
    """Lines that a command prints while the block runs."""

    def __init__(self, *words):
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._lines = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.append(line.rstrip("\n"))

    def lines(self):
        return list(self._lines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._thread.join(10)


def terminations(job, uid):
    """(exit code, reason of the last words) that a pod ended with, by the history: the pod itself may be gone."""
    eventually(job.recorded, "the last changes in the history")
    found = []
    for change in job.history.changes():
        if change.kind != "pod" or change.uid != uid:
            continue
        for container in change.object["status"].get("containerStatuses", []):
            end = container.get("state", {}).get("terminated")
            if end:
                try:
                    reason = json.loads(end.get("message", "")).get("reason")
                except ValueError:
                    reason = end.get("message")
                entry = (end["exitCode"], reason)
                if entry not in found:
                    found.append(entry)
    return found


def removed_only_after_saving(job, step):
    """No pod was asked to go before the status said that `step` is saved."""
    eventually(job.recorded, "the last changes in the history")
    saved = next((c.version for c in job.history.changes() if c.kind == "job"
                  and c.object.get("status", {}).get("checkpoint", {}).get("lastSaved", {}).get("step") == step), None)
    expect(saved is not None, f"step {step} was never said to be saved")
    for change in job.history.changes():
        if change.kind == "pod" and change.version < saved:
            expect(not change.object["metadata"].get("deletionTimestamp"), f"{change.name} was deleted before step {step} was saved")


def _missing():
    """Why real nodes cannot run here; empty: they can."""
    import nodes  # noqa: E402
    from settings import ClusterError
    try:
        nodes.check_machine()
    except ClusterError as problem:
        return str(problem)
    return "" if shutil.which("buildah") else "missing; apt-get install -y --no-install-recommends buildah"


def main(suite, program, cases, nodes):
    repository, build, chosen = sys.argv[1], sys.argv[2], sys.argv[4:]
    report = Report(suite, sys.argv[3])
    cases = [case for case in cases if not chosen or case.__name__ in chosen]
    if "DSJ_CLUSTER" not in os.environ:
        reason = _missing()
        if reason:
            for case in cases:
                report.skipped(case.__name__, reason)
            return report.write()
        cluster = os.path.join(CLUSTER, "cluster.py")
        subprocess.run([cluster, "build", "helm"], check=True)
        return subprocess.run([cluster, "run", "--nodes", str(nodes), sys.executable, os.path.abspath(program), *sys.argv[1:]],
                              check=False).returncode
    world = worlds.World(repository, build)
    for case in cases:
        fault = report.run(case.__name__, lambda case=case: case(world))
        if fault:
            print(f"result: fault | {fault.row()} | {case.__name__}", flush=True)
    return report.write()
