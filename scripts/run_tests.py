#!/usr/bin/env python3
"""Runs CTest's test programs in parallel, and counts single test cases.

Usage: run_tests.py BUILD_DIRECTORY [NAME_PATTERN] [--beside-load N]

Prints one line per program with its verdict; its output follows if it failed, and always the lines "result: ...".
All output is in BUILD_DIRECTORY/test-reports/NAME.log. Exit 0 if all tests ran and none failed. Verdicts:

  ok       it passed; skipped cases are listed
  FAILED   a case failed, the program crashed, it ran past its own limit (CTest's TIMEOUT), or it is not built
  NOT RUN  no time was left before DSJ_TEST_DEADLINE (epoch seconds), or its set-up failed; the exit code is 1

A limit counts from the program's start. Preparations are CTest fixtures: run_tests.py runs each FIXTURES_SETUP once, prints
how long that took, and does not count it towards a test's limit. Each test has its own temporary directory; processes that
it leaves behind are killed.

No core is left idle while a test could use it. Each program takes one core, or as many as its PROCESSORS say. Cheap labels
begin first, and within a label the most expensive program (COST: its seconds on two cores), so that none is left over at
the end. Programs with the labels "waits", "cluster" and "nodes" mostly wait for time to pass or for their own control
plane, so they take no core unless they have PROCESSORS: some of them run in parallel to the others from the beginning. Only
one program with the same RESOURCE_LOCK, and only one with the label "gpu", runs at a time. RUN_SERIAL programs run alone,
after the others. The last line shows how busy the cores were.
Programs with the label "nodes" (a cluster with real nodes, which needs root) run only with DSJ_TEST_NODES=1.
--beside-load N: runs N busy loops in parallel to the tests, which must pass nevertheless.
"""
import argparse
import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from dataclasses import dataclass, field

ORDER = ["unit", "engine", "run", "gpu", "waits", "cluster", "nodes"]
WAITING = ("waits", "cluster", "nodes")  # labels whose programs leave the cores to others
CORES = int(subprocess.check_output([os.path.join(os.path.dirname(os.path.abspath(__file__)), "jobs.sh"), "cores"]))
TOGETHER = min(4, CORES)
GRACE_SECONDS = 60  # between SIGTERM and SIGKILL: time to take a cluster down
KILL_SECONDS = 30  # for the kernel to end killed processes
# Busy until its parent process is gone, even if that was killed.
BUSY = "import os\nwhile os.getppid() == {parent}:\n  for _ in range(10 ** 6): pass"


@dataclass
class Test:
    name: str
    label: str
    command: list  # None if it is not built
    limit: float  # seconds
    serial: bool  # alone
    cores: int  # cores that it keeps busy, at most TOGETHER; 0 if it mostly waits
    cost: float  # seconds, about
    makes: list  # fixtures that this program sets up
    needs: list  # fixtures
    locks: list  # locks that only one test at a time may hold

    def place(self):
        label = WAITING[0] if self.label in WAITING else self.label
        return self.serial, ORDER.index(label), -self.cost, self.name


@dataclass
class Outcome:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    busy: float = 0  # CPU seconds of all processes that it waited for
    output: str = ""
    not_run: str = ""  # why
    ended: list = field(default_factory=list)  # names of processes that it left behind


def listed(build):
    listing = json.loads(subprocess.check_output(["ctest", "--show-only=json-v1"], cwd=build))
    for test in listing["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        label = (properties.get("LABELS") or ["unit"])[0]
        cores = min(TOGETHER, int(properties.get("PROCESSORS", label not in WAITING)))
        locks = properties.get("RESOURCE_LOCK", []) + (["gpu"] if label == "gpu" else [])
        yield Test(test["name"], label, test.get("command"), float(properties.get("TIMEOUT", 300)),
                   bool(properties.get("RUN_SERIAL")), cores, float(properties.get("COST", 0)),
                   properties.get("FIXTURES_SETUP", []), properties.get("FIXTURES_REQUIRED", []), locks)


def processes_of(leader, mark):
    """{pid: name} of processes in a test's session or with its mark in the environment, which survives setsid."""
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
    """Ends a test and all its processes; returns the names of those that it left behind. Its own process group gets SIGTERM
    first, and time to clean up."""
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
    """One run over a build's tests: the tests, the deadline, the fixtures that are set up, and the totals."""

    def __init__(self, build, deadline):
        self.build, self.deadline, self.reason = build, deadline, "the deadline has passed"
        self.reports = os.path.join(build, "test-reports")
        os.makedirs(self.reports, exist_ok=True)
        self.tests = sorted(listed(build), key=Test.place)
        self.passed = self.failed = self.skipped = 0
        self.not_run = []
        self.seconds = 0
        self._outcomes = {}  # by name, for programs that have ended

    def interrupt(self, *_):
        """Signal handler: stops running programs and starts no more."""
        self.deadline, self.reason = 0, "the run was interrupted"

    def over(self):
        return time.time() > self.deadline

    def log(self, test):
        return os.path.join(self.reports, test.name + ".log")

    # ---- one program
    def outcome(self, test):
        """A test that cannot be started or read counts as failed; the others continue."""
        try:
            return self.execute(test)
        except Exception:  # noqa: BLE001: in a thread it would be lost
            return Outcome(failed=1, output=traceback.format_exc())

    def execute(self, test):
        if reason := self.missing(test):
            return Outcome(not_run=reason)
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
            if CORES < len(os.sched_getaffinity(0)):  # a quota, which libtorch's threads ignore
                environment.setdefault("OMP_NUM_THREADS", str(CORES))
            process = subprocess.Popen(test.command, cwd=self.build, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=subprocess.STDOUT, start_new_session=True, env=environment)
            code, busy = self._wait(process, start + test.limit)
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
        outcome.seconds, outcome.busy, outcome.ended = seconds, busy, ended if code is not None else []
        return outcome

    def _wait(self, process, limit):
        """Returns the exit code (None if the limit or the deadline came first) and the CPU seconds."""
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode, usage.ru_utime + usage.ru_stime
            if time.monotonic() > limit or self.over():
                return None, 0
            time.sleep(0.05)

    # ---- fixtures
    def set_ups(self, test):
        return [setup for setup in self.tests if set(setup.makes) & set(test.needs)]

    def with_set_ups(self, tests):
        """The tests, preceded by the fixtures that they need."""
        wanted, before = list(tests), []
        while wanted:
            for setup in self.set_ups(wanted.pop()):
                if setup not in before:
                    before.append(setup)
                    wanted.append(setup)
        return sorted(before, key=Test.place) + [test for test in tests if test not in before]

    def missing(self, test):
        """Why a test whose set-ups have ended cannot run; empty if it can."""
        for setup in self.set_ups(test):
            outcome = self._outcomes.get(setup.name, Outcome(not_run="its set-ups need each other"))
            if outcome.not_run:
                return outcome.not_run
            if outcome.failed:
                return f"its set-up {setup.name} failed"
        return self.reason if self.over() else ""

    # ---- all of them
    def run(self, tests):
        """Starts each program as soon as there are enough free cores."""
        begin = time.monotonic()
        todo, running, ended = self.with_set_ups(tests), [], queue.SimpleQueue()
        while todo or running:
            for test in self.startable(todo, running) or ([] if running else todo[:1]):
                todo.remove(test)
                running.append(test)
                if test.makes and not self.missing(test):
                    print(f"wait    {test.name}: tests need it", flush=True)
                threading.Thread(target=lambda test=test: ended.put((test, self.outcome(test)))).start()
            test, outcome = ended.get()
            running.remove(test)
            self._outcomes[test.name] = outcome
            self.tell(test, outcome)
        self.seconds = time.monotonic() - begin

    def startable(self, todo, running):
        """The programs of `todo` that may start now, in order."""
        now, crowded = list(running), False  # a program that needs more cores than are free blocks later ones
        for test in todo:
            if any(other.serial for other in now) or (test.serial and now):
                break
            free = TOGETHER - sum(other.cores for other in now)
            waiting = sum(other.cores == 0 and not other.makes for other in now)
            if any(setup.name not in self._outcomes for setup in self.set_ups(test)):
                continue
            if {lock for other in now for lock in other.locks} & set(test.locks):
                continue
            if test.makes:  # mostly done already, or built in the background; one at a time
                room = not any(other.makes for other in now)
            elif test.cores:
                room = not crowded and test.cores <= free
                crowded |= not room
            else:
                room = waiting < TOGETHER + all(other.cores == 0 for other in todo)
            if room:
                now.append(test)
        return now[len(running):]

    def tell(self, test, outcome):
        """Prints a program's result and adds it to the totals."""
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
              f"{outcome.skipped} skipped, {outcome.seconds:.1f} s, {outcome.busy:.1f} s of a core", flush=True)
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
        """Prints the last lines; returns the exit code."""
        busy = sum(outcome.busy for outcome in self._outcomes.values())
        print(f"result: tests: {self.seconds:.0f} s, in which {CORES} cores had {busy:.0f} s of work", flush=True)
        for line in self.not_run:
            print(line)
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed or self.not_run or self.passed == 0 else 0


def counted(test, code, report, output):
    """Counts the cases of a program that ended with `code` (None if it ran past its limit)."""
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
    """Runs `count` busy loops at the tests' own priority."""
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
