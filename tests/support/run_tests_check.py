#!/usr/bin/env python3
"""scripts/run_tests.py with test programs that are made here: what it counts, what it stops, and what it leaves out.

Usage: run_tests_check.py REPOSITORY GTEST_REPORT. Exit 1 on a failure.
"""
import contextlib
import importlib.util
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import Report, expect  # noqa: E402

RUNNER = os.path.join(os.path.abspath(sys.argv[1]), "scripts/run_tests.py")
ALL = 64  # cores, more than a runner hands out
LONG = 120  # seconds: the bound of a wait that ends by an event
# Waits for a file of another program.
AWAIT = "until [ -e {} ]; do read -t 0.05 _ <> {}/never || :; done"


def module():
    """run_tests.py anew, to run in this process."""
    spec = importlib.util.spec_from_file_location("run_tests", RUNNER)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules["run_tests"] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def eventually(condition, what):
    end = time.monotonic() + LONG
    while not condition():
        expect(time.monotonic() < end, f"not within {LONG} s: {what}")
        time.sleep(0.02)


class Build:
    """A build directory with shell scripts for test programs."""

    def __init__(self, room):
        self.room = room
        os.mkfifo(os.path.join(room, "never"))

    def add(self, name, script, report=None, label="unit", **properties):
        """report: what the program writes as its GoogleTest report, and is told to by its command."""
        path, words = self.path(name + ".sh"), [self.path(name + ".sh")]
        text = f"#!/bin/bash\n{script}\n"
        if report is not None:
            words.append(self.report(name))
            text = f"#!/bin/bash\ncat >{self.report(name)} <<'END'\n{report}\nEND\n{script}\n"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        self.list(name, words, LABELS=label, **properties)

    def list(self, name, words, **properties):
        with open(self.path("CTestTestfile.cmake"), "a", encoding="utf-8") as file:
            file.write(f"add_test({name} " + " ".join(f'"{word}"' for word in words) + ")\n")
            for key, value in properties.items():
                file.write(f'set_tests_properties({name} PROPERTIES {key} "{value}")\n')

    def path(self, name):
        return os.path.join(self.room, name)

    def report(self, name):
        return os.path.join(self.room, "test-reports", name + ".json")

    def there(self, name):
        return os.path.exists(self.path(name))

    def wait(self, name):
        """Shell words that wait for a file."""
        return AWAIT.format(self.path(name), self.room)

    def run(self, *words, **environment):
        """(exit code, output)"""
        done = subprocess.run([sys.executable, RUNNER, self.room, *words], capture_output=True, text=True, check=False,
                              env={**os.environ, "DSJ_TEST_DEADLINE": "", **environment})
        expect("Traceback" not in done.stderr, done.stderr)
        return done.returncode, done.stdout

    def run_until(self, file, act, **settings):
        """In this process: act(session) once a program has made `file`. (exit code, output)"""
        runner = module()
        for name, value in settings.items():
            setattr(runner, name, value)
        session, out = runner.Session(self.room, float("inf")), io.StringIO()

        def watch():
            eventually(lambda: self.there(file), file)
            act(session)
        thread = threading.Thread(target=watch)
        thread.start()
        with contextlib.redirect_stdout(out):
            session.run(session.tests)
            code = session.close()
        thread.join()
        return code, out.getvalue()


def case_report(*cases):
    """passed, failed or skipped each"""
    more = {"passed": "", "failed": ', "failures": [{"failure": "1 is not 2"}]', "skipped": ""}
    result = {"passed": "COMPLETED", "failed": "COMPLETED", "skipped": "SKIPPED"}
    entries = ", ".join(f'{{"name": "{i}", "result": "{result[c]}"{more[c]}}}' for i, c in enumerate(cases))
    return f'{{"testsuites": [{{"testsuite": [{entries}]}}]}}'


def ends_with(output, *lines):
    expect(output.splitlines()[-len(lines):] == list(lines), f"the last lines are not {lines}:\n{output}")


def has(output, *texts):
    for text in texts:
        expect(text in output, f"{text!r} is not in\n{output}")


def gone(*pid_files):
    for path in pid_files:
        with open(path, encoding="ascii") as file:
            pid = int(file.read())
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except OSError:
            continue
        expect(state in "ZX", f"{path}: {pid} still runs")


# A child in the test's own process group, and one in a session of its own; each says its pid. Both have become `sleep`
# at the end.
def family(build):
    pause = f"read -t 0.05 _ <> {build.path('never')} || :"
    return (f"sleep 1000 & echo $! >{build.path('child')}\n"
            f"setsid bash -c 'echo $$ >{build.path('grandchild')}; exec sleep 1000' &\n"
            f"until [ -s {build.path('grandchild')} ]; do {pause}; done\n"
            f"for pid in $(cat {build.path('child')} {build.path('grandchild')})\n"
            f"do until [ $(cat /proc/$pid/comm) = sleep ]; do {pause}; done; done")


def cases_are_counted(build):
    build.add("counts", "echo 'result: 7 of 7'; echo '2 was Skipped: no disk'", case_report("passed", "passed", "skipped"))
    build.add("plain", "echo hidden")
    code, output = build.run()
    expect(code == 0 and "hidden" not in output, output)
    has(output, "ok      counts [unit] 2 passed, 0 failed, 1 skipped", "        result: 7 of 7", "        2 was Skipped: no disk",
        "ok      plain [unit] 1 passed, 0 failed, 0 skipped")
    ends_with(output, "3 passed, 0 failed, 1 skipped")


def a_pattern_chooses(build):
    build.add("one", "")
    build.add("two", "exit 1")
    ends_with(build.run("^on")[1], "1 passed, 0 failed, 0 skipped")
    code, output = build.run("nothing")
    expect(code == 1, "nothing was run")
    ends_with(output, "0 passed, 0 failed, 0 skipped")


def a_failure_shows_its_output(build):
    build.add("fails", "echo the reason; exit 1", case_report("passed", "failed"))
    code, output = build.run()
    expect(code == 1, "exit 1")
    has(output, "FAILED  fails [unit] 1 passed, 1 failed", "the reason", build.path("test-reports/fails.log"))
    ends_with(output, "1 passed, 1 failed, 0 skipped")


def a_crash_is_named(build):
    build.add("crashes", "kill -SEGV $$")
    build.add("late", "kill -ABRT $$", case_report("passed"))
    build.add("leaves", "exit 3")
    output = build.run()[1]
    has(output, "ended by SIGSEGV", "ended by SIGABRT", "exit code 3", "FAILED  late [unit] 1 passed, 1 failed")
    ends_with(output, "1 passed, 3 failed, 0 skipped")


def a_report_must_be_written(build):
    build.list("quiet", ["/bin/true", "--gtest_output=json:" + build.report("quiet")], LABELS="unit")
    build.add("broken", "", '{"testsuites": [')
    build.add("other", "", '["no report"]')
    code, output = build.run()
    expect(code == 1, "exit 1")
    has(output, "ended with 0 and did not write", "is no GoogleTest report")
    ends_with(output, "0 passed, 3 failed, 0 skipped")


def a_report_of_last_time_does_not_count(build):
    """The program writes its report the first time only."""
    ran, report = build.path("ran"), build.report("once")
    build.add("once", f"[ -e {ran} ] || echo '{case_report('passed')}' >{report}; touch {ran}")
    build.list("told", [build.path("once.sh"), report.replace("once", "told")], LABELS="cluster")
    ends_with(build.run("once")[1], "1 passed, 0 failed, 0 skipped")
    with open(build.report("told"), "w", encoding="utf-8") as file:
        file.write(case_report("passed"))
    ends_with(build.run("told")[1], "0 passed, 1 failed, 0 skipped")


def what_is_not_built_fails(build):
    build.list("missing", [build.path("nothing")], LABELS="unit")
    has(build.run()[1], "its program is not built", "0 passed, 1 failed, 0 skipped")


def what_cannot_be_started_fails_alone(build):
    with open(build.path("text"), "w", encoding="utf-8") as file:
        file.write("no program")
    build.list("text", [build.path("text")], LABELS="unit")
    build.add("other", "")
    code, output = build.run()
    expect(code == 1, "exit 1")
    has(output, "FAILED  text [unit] 0 passed, 1 failed", "PermissionError")
    ends_with(output, "1 passed, 1 failed, 0 skipped")


def a_hang_fails_at_its_own_limit(build):
    build.add("hangs", family(build) + "\nwait", TIMEOUT=1)
    code, output = build.run()
    expect(code == 1, "exit 1")
    has(output, "FAILED  hangs", "timeout after 1 s")
    ends_with(output, "0 passed, 1 failed, 0 skipped")
    started = (build.path(name) for name in ("child", "grandchild") if build.there(name))  # a busy machine may not come so far
    gone(*(path for path in started if os.path.getsize(path)))


def the_deadline_stops_and_is_no_failure(build):
    build.add("a_first", "")
    build.add("b_runs", f"trap 'touch {build.path('cleaned')}; exit 0' TERM\n{family(build)}\ntouch {build.path('up')}\nwait",
              case_report("passed"), label="run", PROCESSORS=ALL)
    build.add("c_later", "", label="run")
    code, output = build.run_until("up", lambda session: setattr(session, "deadline", 0))
    expect(code == 1, "NOT RUN is not green")
    expect(build.there("cleaned"), "SIGTERM came first")
    gone(build.path("child"), build.path("grandchild"))
    expect("FAILED" not in output, output)
    lines = output.splitlines()
    expect(re.fullmatch(r"NOT RUN: b_runs: stopped after \d+ s: the deadline has passed", lines[-3]), output)
    ends_with(output, lines[-3], "NOT RUN: c_later: the deadline has passed", "1 passed, 0 failed, 0 skipped")


def after_the_deadline_nothing_starts(build):
    build.add("one", f"touch {build.path('ran')}")
    code, output = build.run(DSJ_TEST_DEADLINE="1")
    expect(code == 1 and not build.there("ran"), output)
    ends_with(output, "NOT RUN: one: the deadline has passed", "0 passed, 0 failed, 0 skipped")


def who_ignores_sigterm_is_killed(build):
    build.add("stubborn", f"trap '' TERM\n{family(build)}\ntouch {build.path('up')}\nwhile :; do wait; done", label="run")
    code, output = build.run_until("up", lambda session: setattr(session, "deadline", 0), GRACE_SECONDS=0.2)
    expect(code == 1, output)
    gone(build.path("child"), build.path("grandchild"))
    ends_with(output, "0 passed, 0 failed, 0 skipped")


def an_interrupted_run_leaves_nothing(build):
    build.add("runs", f"{family(build)}\ntouch {build.path('up')}\nwait", label="run", PROCESSORS=ALL)
    build.add("then", "", label="run")
    with subprocess.Popen([sys.executable, RUNNER, build.room], stdout=subprocess.PIPE, text=True,
                          env=dict(os.environ, DSJ_TEST_DEADLINE="")) as runner:
        eventually(lambda: build.there("up"), "the program's start")
        runner.send_signal(signal.SIGTERM)
        output = runner.communicate(timeout=LONG)[0]
    expect(runner.returncode == 1, output)
    gone(build.path("child"), build.path("grandchild"))
    has(output, "NOT RUN: runs: stopped after", "NOT RUN: then: the run was interrupted")
    ends_with(output, "0 passed, 0 failed, 0 skipped")


def what_a_test_leaves_behind_is_ended(build):
    build.add("leaves", family(build))
    code, output = build.run()
    expect(code == 0, output)
    has(output, "it left processes behind, now ended: sleep")
    gone(build.path("child"), build.path("grandchild"))


def each_has_a_temporary_directory_of_its_own(build):
    for name in ("one", "two"):
        build.add(name, f"[ $TMPDIR = $TEST_TMPDIR ] && mkdir $TMPDIR/same && echo $TMPDIR >{build.path(name)}")
    ends_with(build.run()[1], "2 passed, 0 failed, 0 skipped")
    for name in ("one", "two"):
        with open(build.path(name), encoding="utf-8") as file:
            expect(not os.path.exists(file.read().strip()), "it is removed")


def a_fixture_is_made_once_and_first(build):
    build.add("needs_1", f"[ -e {build.path('made')} ]", FIXTURES_REQUIRED="thing")
    build.add("needs_2", f"[ -e {build.path('made')} ]", FIXTURES_REQUIRED="thing")
    build.add("thing_made", f"mkdir {build.path('made')}", label="cluster", FIXTURES_SETUP="thing")
    code, output = build.run("needs")  # the set-up comes though the pattern does not name it
    expect(code == 0, output)
    words = [line.split()[:2] for line in output.splitlines()[:-2]]
    expect(words[:2] == [["wait", "thing_made:"], ["ready", "thing_made"]], output)
    expect(sorted(words[2:]) == [["ok", "needs_1"], ["ok", "needs_2"]], output)  # they run together: either ends first


def a_failed_fixture_is_one_failure(build):
    build.add("made", "echo no network; exit 1", label="cluster", FIXTURES_SETUP="thing")
    build.add("more", f"touch {build.path('ran')}", label="cluster", FIXTURES_SETUP="other", FIXTURES_REQUIRED="thing")
    build.add("needs", f"touch {build.path('ran')}", label="run", FIXTURES_REQUIRED="other")
    code, output = build.run()
    expect(code == 1 and not build.there("ran"), output)
    has(output, "no network")
    ends_with(output, "NOT RUN: more: its set-up made failed", "NOT RUN: needs: its set-up made failed",
              "0 passed, 1 failed, 0 skipped")


def tests_run_together(build):
    """Each of two waits for the other, whatever their labels; what they print stays whole."""
    for name, other, label in (("one", "two", "unit"), ("two", "one", "engine")):
        script = f"touch {build.path(name)}\n{build.wait(other)}\nfor i in {{1..200}}; do echo {name} $i; done; exit 1"
        build.add(name, script, label=label, TIMEOUT=LONG)
    output = build.run_until("one", lambda _: None, TOGETHER=2)[1]
    for name in ("one", "two"):
        has(output, "\n".join(f"{name} {i}" for i in range(1, 201)))
    ends_with(output, "0 passed, 2 failed, 0 skipped")


def no_more_than_there_are_cores(build):
    """Each takes one of two things; who finds none fails. The one that wants both cores takes both."""
    free = [build.path("free1"), build.path("free2")]
    for path in free:
        os.mkdir(path)
    take = f"for f in {' '.join(free)}; do rmdir $f 2>/dev/null && exec mkdir $f; done; exit 1"
    for number in range(6):
        build.add(f"test{number}", take, label=("unit", "run")[number % 2])
    build.add("wide", f"rmdir {' '.join(free)} && mkdir {' '.join(free)}", label="engine", PROCESSORS=ALL)
    ends_with(build.run_until("test0.sh", lambda _: None, TOGETHER=2)[1], "7 passed, 0 failed, 0 skipped")


def a_wide_one_is_not_put_off(build):
    """It waits for all cores; one that comes later does not get the core that is free meanwhile."""
    build.add("a_wide", f"touch {build.path('wide')}", label="engine", PROCESSORS=ALL)
    build.add("a_first", f"{build.wait('waits')}\n[ ! -e {build.path('later')} ]", label="unit", TIMEOUT=LONG)
    build.add("b_later", f"[ -e {build.path('wide')} ] && touch {build.path('later')}", label="engine")
    build.add("waits", f"touch {build.path('waits')}", label="waits")
    ends_with(build.run_until("a_first.sh", lambda _: None, TOGETHER=2)[1], "4 passed, 0 failed, 0 skipped")


def the_dearest_begins_first(build):
    for name, cost in (("cheap", 1), ("dear", 20), ("unknown", None)):
        build.add(name, f"echo {name} >>{build.path('order')}", label="run", **({"COST": cost} if cost else {}))
    build.add("label_comes_first", f"echo unit >>{build.path('order')}")
    ends_with(build.run_until("dear.sh", lambda _: None, TOGETHER=1)[1], "4 passed, 0 failed, 0 skipped")
    with open(build.path("order"), encoding="ascii") as file:
        expect(file.read().split() == ["unit", "dear", "cheap", "unknown"], "the order")


def tests_that_wait_run_beside_the_others(build):
    """On one core: a test of a cluster, one that waits for time to pass, and one that computes wait for each other."""
    names = (("one", "cluster"), ("two", "waits"), ("three", "unit"))
    for name, label in names:
        others = "\n".join(build.wait(other) for other, _ in names)
        build.add(name, f"touch {build.path(name)}\n{others}", label=label, TIMEOUT=LONG,
                  **({"FIXTURES_REQUIRED": "made"} if label == "cluster" else {}))
    build.add("made", "exit 0", label="cluster", FIXTURES_SETUP="made")
    ends_with(build.run_until("one.sh", lambda _: None, TOGETHER=2)[1], "4 passed, 0 failed, 0 skipped")


def a_set_up_that_takes_long_holds_up_only_who_needs_it(build):
    build.add("made", build.wait("free"), label="cluster", FIXTURES_SETUP="made", TIMEOUT=LONG)
    build.add("needs", f"[ -e {build.path('free')} ]", FIXTURES_REQUIRED="made")
    build.add("another", f"touch {build.path('free')}", label="waits")
    ends_with(build.run_until("made.sh", lambda _: None, TOGETHER=1)[1], "3 passed, 0 failed, 0 skipped")


def one_at_a_time_holds_a_lock(build):
    """Each of three takes what no two can hold, while a fourth, without the lock, runs beside all of them."""
    held = build.path("held")
    for number in range(3):
        build.add(f"test{number}", f"mkdir {held} && {build.wait('beside')} && rmdir {held}", label="cluster",
                  RESOURCE_LOCK="nodes", TIMEOUT=LONG)
    build.add("beside", f"{build.wait('held')}\ntouch {build.path('beside')}", label="waits")
    ends_with(build.run_until("test0.sh", lambda _: None, TOGETHER=4)[1], "4 passed, 0 failed, 0 skipped")


def one_at_a_time_has_the_gpu(build):
    held = build.path("held")
    for number in range(3):
        build.add(f"test{number}", f"mkdir {held} && rmdir {held}", label="gpu")
    ends_with(build.run_until("test0.sh", lambda _: None, TOGETHER=4)[1], "3 passed, 0 failed, 0 skipped")


def who_asks_for_it_runs_alone_and_last(build):
    """Each leaves a trace while it runs."""
    for name, label in (("one", "unit"), ("two", "cluster"), ("three", "run")):
        build.add(name, f"touch {build.path(name)}.runs && rm {build.path(name)}.runs && touch {build.path(name)}", label=label)
    for name in ("alone1", "alone2"):
        build.add(name, f"cd {build.room} && ls one two three && [ -z \"$(ls | grep '[.]runs$')\" ] && mkdir held && rmdir held",
                  RUN_SERIAL="TRUE")
    ends_with(build.run_until("one.sh", lambda _: None, TOGETHER=4)[1], "5 passed, 0 failed, 0 skipped")


def what_a_program_takes_of_a_core_is_told(build):
    build.add("busy", "for i in {1..200000}; do :; done")
    output = build.run()[1]
    found = re.search(r"ok +busy .* s, ([0-9.]+) s of a core\nresult: tests: \d+ s, in which \d+ cores had \d+ s of work", output)
    expect(found and float(found[1]) > 0, output)


def load_runs_beside(build):
    build.add("counts", f"echo $PPID >{build.path('runner')}\n"
              "until [ $(grep -l 'os[.]getppid() == '$PPID: /proc/[0-9]*/cmdline 2>/dev/null | wc -l) = 3 ]\n"
              f"do read -t 0.05 _ <> {build.path('never')} || :; done", TIMEOUT=LONG)
    code, output = build.run("--beside-load", "3")
    expect(code == 0, output)
    with open(build.path("runner"), encoding="ascii") as file:
        mark = f"os.getppid() == {file.read().strip()}:"
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as file:
            expect(mark not in file.read(), "a loop is left")


CASES = [cases_are_counted, a_pattern_chooses, a_failure_shows_its_output, a_crash_is_named, a_report_must_be_written,
         a_report_of_last_time_does_not_count, what_is_not_built_fails, what_cannot_be_started_fails_alone,
         a_hang_fails_at_its_own_limit,
         the_deadline_stops_and_is_no_failure, after_the_deadline_nothing_starts, who_ignores_sigterm_is_killed,
         an_interrupted_run_leaves_nothing, what_a_test_leaves_behind_is_ended,
         each_has_a_temporary_directory_of_its_own, a_fixture_is_made_once_and_first,
         a_failed_fixture_is_one_failure, tests_run_together, no_more_than_there_are_cores, a_wide_one_is_not_put_off,
         the_dearest_begins_first, tests_that_wait_run_beside_the_others, a_set_up_that_takes_long_holds_up_only_who_needs_it,
         one_at_a_time_holds_a_lock, one_at_a_time_has_the_gpu, who_asks_for_it_runs_alone_and_last,
         what_a_program_takes_of_a_core_is_told, load_runs_beside]


def main():
    report = Report("RunTests", sys.argv[2])
    for case in CASES:
        with tempfile.TemporaryDirectory() as room:
            report.run(case.__name__, lambda case=case, room=room: case(Build(room)))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
