#!/usr/bin/env python3
"""How the cluster's programs come into the cache: once each, whoever asks. Nothing is built here.

Usage: programs_check.py GTEST_REPORT. Exit 1 on a failure.
"""
import fcntl
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support")]
from cases import Report, Skip, expect  # noqa: E402
import cluster  # noqa: E402
import nodes  # noqa: E402
import programs  # noqa: E402
from settings import ClusterError  # noqa: E402

LONG = 120  # seconds: the bound of a wait that ends by an event


class Builds:
    """programs.py with a cache of its own, and a build that makes an empty file."""

    def __init__(self, room):
        self.built = []
        programs.CACHE = room
        programs._go_on_path = lambda: "go"
        programs._build_one = self._build

    def _build(self, _go, program):
        self.built.append(program)
        os.makedirs(os.path.dirname(programs.path_of(program)), exist_ok=True)
        with open(programs.path_of(program), "w", encoding="ascii"):
            pass


def each_is_built_once(room):
    builds = Builds(room)
    cluster.build([])
    cluster.build(["api", "kubectl"])
    cluster.build(["tools"])
    expect(builds.built == ["etcd", "kube-apiserver", "kubectl", "helm"], builds.built)


def an_unknown_name_is_refused(room):
    builds = Builds(room)
    try:
        cluster.build(["kubectl", "etdc"])
        raise AssertionError("taken")
    except ClusterError as problem:
        expect("etdc" in str(problem) and "etcd" in str(problem), problem)
    expect(not builds.built, builds.built)


def nodes_are_built_where_they_can_run(room):
    builds, check = Builds(room), nodes.check_machine
    try:
        nodes.check_machine = lambda: (_ for _ in ()).throw(ClusterError("no root"))
        cluster.build(["nodes"])
        expect(not builds.built, builds.built)
        nodes.check_machine = lambda: None
        cluster.build(["nodes"])
        expect(builds.built == ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "helm",
                                "kubelet", "kube-proxy", "coredns"], builds.built)
    finally:
        nodes.check_machine = check


def until(wanted, look):
    end = time.monotonic() + LONG
    while look() != wanted:
        expect(time.monotonic() < end, f"{look()} instead of {wanted}")
        time.sleep(0.02)


def niceness(process):
    """(its own, its session's)"""
    return os.getpriority(os.PRIO_PROCESS, process), programs.autogroup_nice(process)


def may_raise():
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        held = next(line for line in file if line.startswith("CapEff:"))
    return int(held.split()[1], 16) >> 23 & 1  # CAP_SYS_NICE, which root in a container may lack


def who_waits_lends_its_priority(room):
    """Another process holds the lock, at a low priority; it builds, and goes on at ours."""
    if not may_raise():
        raise Skip("only who has CAP_SYS_NICE may raise a priority")
    builds = Builds(room)
    with open(os.path.join(room, ".build.lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = "echo 5 >/proc/self/autogroup; exec nice -n 5 cat"
        with subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as other:
            mine, groups = niceness(os.getpid()), os.path.exists("/proc/self/autogroup")
            until((min(mine[0] + 5, 19), 5 if groups else 0), lambda: niceness(other.pid))
            lock.write(str(other.pid))
            lock.flush()
            waiter = threading.Thread(target=cluster.build, args=(["etcd"],))
            waiter.start()
            until((mine[0], min(mine[1], 5)), lambda: niceness(other.pid))
            builds._build("go", "etcd")  # the other's work
            fcntl.flock(lock, fcntl.LOCK_UN)
            waiter.join()
    expect(builds.built == ["etcd"], "not built again")


def main():
    report = Report("ClusterPrograms", sys.argv[1])
    for case in (each_is_built_once, an_unknown_name_is_refused, nodes_are_built_where_they_can_run, who_waits_lends_its_priority):
        with tempfile.TemporaryDirectory() as room:
            report.run(case.__name__, lambda case=case, room=room: case(room))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
