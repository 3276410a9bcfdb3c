#!/usr/bin/env python3
"""Runs the test programs that CTest knows, cheap labels first, and counts single test cases.

Usage: run_tests.py BUILD_DIRECTORY [NAME_PATTERN] [--beside-load N]

Each program gets one line with its verdict; its output follows where it failed, and always the lines "result: ...".
All output is in BUILD_DIRECTORY/test-reports/NAME.log. Exit 0: nothing failed and nothing was left out. Verdicts:

  ok       it passed; skipped cases are listed
  FAILED   a case failed, the program crashed, it ran past its own limit (CTest's TIMEOUT), or it is not built
  NOT RUN  no time was left before DSJ_TEST_DEADLINE (epoch seconds), or a set-up of it failed; the exit code is 1

A limit starts with the program. What a test needs first is a CTest fixture: run_tests.py runs its FIXTURES_SETUP once,
prints how long that took, and takes it off no test's limit. A test has a temporary directory of its own; processes that it
leaves behind are ended with it. Programs of the label "unit" run as many at a time as there are cores (four at most),
unless they are RUN_SERIAL. Those of the labels "waits" and "cluster", which mostly wait for time to pass or for their own
control plane, run at the end, one more at a time, unless they are RUN_SERIAL. All others run alone. Of those that have the
same RESOURCE_LOCK, one runs at a time.
Programs of the label "nodes" (a cluster with real nodes, which needs root) run only with DSJ_TEST_NODES=1.
--beside-load N: N busy loops run beside the tests, which must pass all the same.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field

ORDER = ["unit", "engine", "run", "gpu", "waits", "cluster", "nodes"]
WAITING = ("waits", "cluster")  # labels whose programs leave the cores to others
CORES = int(subprocess.check_output([os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs.sh"), "cores"]))
TOGETHER = min(4, CORES)
GRACE_SECONDS = 60  # between SIGTERM and SIGKILL: time to take a cluster down
KILL_SECONDS = 30  # for the kernel to end what was killed
# Busy until the process that started it is gone, even if that was killed.
BUSY = "import os\nwhile os.getppid() == {parent}:\n  for _ in range(10 ** 6): pass"


@dataclass
class Test:
    name: str
    label: str
    command: list  # None: not built
    limit: float  # seconds
    alone: bool
    makes: list  # fixtures that this is the set-up of
    needs: list  # fixtures
    locks: list  # what only one test at a time may hold

    def place(self):
        """Long ones first among those that run together, so that none is left over at the end."""
        label = WAITING[0] if self.label in WAITING else self.label
        return ORDER.index(label), self.alone, 0 if self.alone else -self.limit, self.name


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    output: str = ""
    not_run: str = ""  # why
    ended: list = field(default_factory=list)  # names of processes it left behind


def listed(build):
    listing = json.loads(subprocess.check_output(["ctest", "--show-only=json-v1"], cwd=build))
    for test in listing["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        label = (properties.get("LABELS") or ["unit"])[0]
        makes, needs = properties.get("FIXTURES_SETUP", []), properties.get("FIXTURES_REQUIRED", [])
        alone = label not in ("unit", *WAITING) or bool(properties.get("RUN_SERIAL") or makes)
        yield Test(test["name"], label, test.get("command"), float(properties.get("TIMEOUT", 300)), alone, makes, needs,
                   properties.get("RESOURCE_LOCK", []))


def processes_of(leader, mark):
    """{pid: name} of what runs in a test's session or has its mark in the environment, which setsid keeps."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
            state, _, group, session = rest.split()[:4]
            if state in "ZX":
                continue
            ours = leader in (int(group), int(session))
            if not ours:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    ours = mark.encode() in file.read()
        except OSError:  # gone meanwhile, or another user's
            continue
        if ours:
            found[int(entry)] = name
    return found


def _send(pids, number):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all(process, mark):
    """Ends a test with all that came from it; names of what was left. Its own process group is asked first and has time to
    clean up."""
    left = processes_of(process.pid, mark)
    names = sorted(set(left.values()))
    _send([pid for pid in left if _group(pid) == process.pid], signal.SIGTERM)
    asked = time.monotonic()
    while left and time.monotonic() < asked + GRACE_SECONDS + KILL_SECONDS:
        if time.monotonic() > asked + GRACE_SECONDS or all(_group(pid) != process.pid for pid in left):
            _send(left, signal.SIGKILL)
        process.poll()
        time.sleep(0.05)
        left = processes_of(process.pid, mark)
    return names


def _group(pid):
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


class Session:
    """One run over a build's tests: what is there, the deadline, what has been set up, and the sums."""

    def __init__(self, build, deadline):
        self.build, self.deadline, self.reason = build, deadline, "the deadline has passed"
        self.reports = os.path.join(build, "test-reports")
        os.makedirs(self.reports, exist_ok=True)
        self.tests = sorted(listed(build), key=Test.place)
        self.passed = self.failed = self.skipped = 0
        self.not_run = []
        self._outcomes = {}
        self._locks = {lock: threading.Lock() for test in self.tests for lock in test.locks}

    def interrupt(self, *_):
        """What runs is stopped, what has not begun is not run. A signal's handler."""
        self.deadline, self.reason = 0, "the run was interrupted"

    def over(self):
        return time.time() > self.deadline

    def log(self, test):
        return os.path.join(self.reports, test.name + ".log")

    # ---- one program
    def execute(self, test):
        if self.over():
            return Outcome(not_run=self.reason)
        if not test.command:
            return Outcome(failed=1, output="its program is not built\n")
        report = os.path.join(self.reports, test.name + ".json")
        with contextlib.suppress(FileNotFoundError):
            os.remove(report)
        mark = uuid.uuid4().hex
        # A run of run_tests.py inside a test keeps the outer mark, so that the outer run finds its processes, too.
        marks = os.environ.get("DSJ_RUNNER_MARK", "") + mark
        start = time.monotonic()
        with open(self.log(test), "w+b") as log, \
                tempfile.TemporaryDirectory(prefix="dsj-", ignore_cleanup_errors=True) as room:
            environment = dict(os.environ, DSJ_RUNNER_MARK=marks, TMPDIR=room, TEST_TMPDIR=room)
            if CORES < len(os.sched_getaffinity(0)):  # a quota, which libtorch's threads do not see
                environment.setdefault("OMP_NUM_THREADS", str(CORES))
            process = subprocess.Popen(test.command, cwd=self.build, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT, start_new_session=True, env=environment)
            code = self._wait(process, start + test.limit)
            stopped = code is None and self.over()
            seconds = time.monotonic() - start
            ended = end_all(process, mark)
            log.seek(0)
            output = log.read().decode(errors="replace")
        if stopped:
            return Outcome(seconds=seconds, output=output, not_run=f"stopped after {seconds:.0f} s: {self.reason}")
        if code is None:
            output += f"\ntimeout after {test.limit:.0f} s\n"
        outcome = counted(test, code, report, output)
        outcome.seconds, outcome.ended = seconds, ended if code is not None else []
        return outcome

    def execute_locked(self, test):
        with contextlib.ExitStack() as held:
            for lock in sorted(test.locks):  # in one order: two tests never wait for each other
                held.enter_context(self._locks[lock])
            return self.execute(test)

    def _wait(self, process, limit):
        """The exit code; None: the limit or the deadline came first."""
        while True:
            try:
                return process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                if time.monotonic() > limit or self.over():
                    return None

    # ---- fixtures
    def missing(self, test):
        """Makes the fixtures that a test needs. Why it cannot run; empty: it can."""
        for setup in self.tests:
            if set(setup.makes) & set(test.needs):
                outcome = self.set_up(setup)
                if outcome.not_run:
                    return outcome.not_run
                if outcome.failed:
                    return f"its set-up {setup.name} failed"
        return ""

    def set_up(self, setup):
        if setup.name not in self._outcomes:
            reason = self.missing(setup)
            if not reason and not self.over():
                print(f"wait    {setup.name}: tests need it", flush=True)
            outcome = self._outcomes[setup.name] = Outcome(not_run=reason) if reason else self.execute(setup)
            self.tell(setup, outcome)
        return self._outcomes[setup.name]

    # ---- all of them
    def run(self, tests):
        self.together([test for test in tests if not test.alone and test.label == "unit"], TOGETHER)
        for test in tests:
            if test.makes:
                self.set_up(test)
            elif test.alone:
                reason = self.missing(test)
                self.tell(test, Outcome(not_run=reason) if reason else self.execute(test))
        self.together([test for test in tests if not test.alone and test.label != "unit"], TOGETHER + 1)

    def together(self, tests, at_a_time):
        """At most so many at a time; what they need is made first."""
        ready = []
        for test in tests:
            if reason := self.missing(test):
                self.tell(test, Outcome(not_run=reason))
            else:
                ready.append(test)
        with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
            started = {pool.submit(self.execute_locked, test): test for test in ready}
            for done in concurrent.futures.as_completed(started):
                self.tell(started[done], done.result())

    def tell(self, test, outcome):
        """Prints it whole and adds it up."""
        if outcome.not_run:
            print(f"NOT RUN {test.name} [{test.label}] {outcome.not_run}", flush=True)
            self.not_run.append(f"NOT RUN: {test.name}: {outcome.not_run}")
            if outcome.output:
                print(f"        what it printed until then: {self.log(test)}", flush=True)
            return
        self.passed += outcome.passed
        self.failed += outcome.failed
        self.skipped += outcome.skipped
        verdict = "FAILED" if outcome.failed else "ready" if test.makes else "ok"
        print(f"{verdict:7} {test.name} [{test.label}] {outcome.passed} passed, {outcome.failed} failed, "
              f"{outcome.skipped} skipped, {outcome.seconds:.1f} s", flush=True)
        if outcome.ended:
            print(f"        it left processes behind, now ended: {' '.join(outcome.ended)}", flush=True)
        if outcome.failed:
            print(outcome.output[-20000:], flush=True)
            print(f"        all of it: {self.log(test)}", flush=True)
            return
        for line in outcome.output.splitlines():
            if line.startswith("result: ") or (outcome.skipped and re.search("Skipped|SKIPPED|skipped:", line)):
                print("        " + line, flush=True)

    def close(self):
        """The last lines; the exit code."""
        for line in self.not_run:
            print(line)
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed or self.not_run or self.passed == 0 else 0


def counted(test, code, report, output):
    """Counts the cases of a program that ended with `code`; None: it ran past its limit."""
    if not os.path.exists(report):
        if code == 0 and any(report in word for word in test.command):
            return Outcome(failed=1, output=output + f"\nit ended with 0 and did not write {report}\n")
        return Outcome(passed=1, output=output) if code == 0 else Outcome(failed=1, output=output + _end_of(code))
    outcome = Outcome(output=output)
    try:
        with open(report, encoding="utf-8") as file:
            cases = [case for suite in json.load(file)["testsuites"] for case in suite["testsuite"]]
    except (ValueError, KeyError, TypeError) as problem:
        return Outcome(failed=1, output=output + f"\n{report} is no GoogleTest report: {problem!r}\n" + _end_of(code))
    for case in cases:
        if case.get("failures"):
            outcome.failed += 1
        elif case.get("result") == "SKIPPED":
            outcome.skipped += 1
        else:
            outcome.passed += 1
    if code != 0 and outcome.failed == 0:
        outcome.failed, outcome.output = 1, output + _end_of(code)
    return outcome


def _end_of(code):
    if code is None or code == 0:
        return ""
    return f"\nended by {signal.Signals(-code).name}\n" if code < 0 else f"\nexit code {code}\n"


@contextlib.contextmanager
def busy(count):
    """`count` loops that take a core each, at the tests' own priority."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY.format(parent=os.getpid())]) for _ in range(count)]
    if loops:
        print(f"        beside {count} busy loops", flush=True)
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--beside-load", type=int, default=0, metavar="N")
    words = parser.parse_args()
    session = Session(os.path.abspath(words.build), float(os.environ.get("DSJ_TEST_DEADLINE") or "inf"))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, session.interrupt)
    chosen = [test for test in session.tests if re.search(words.pattern, test.name)]
    for test in chosen:
        if test.label == "nodes" and not os.environ.get("DSJ_TEST_NODES"):
            print(f"        {test.name} is left to `make test-cluster`", flush=True)
    with busy(words.beside_load):
        session.run([test for test in chosen if test.label != "nodes" or os.environ.get("DSJ_TEST_NODES")])
    return session.close()


if __name__ == "__main__":
    sys.exit(main())
