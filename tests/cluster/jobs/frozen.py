"""Freezing processes, as a hung kernel or a paused machine does: they stop and, when they go on, do not know it."""
import glob
import os
import signal

import processes  # of tests/cluster


def _below(pid):
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path, encoding="ascii") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            continue
        for child in children:
            found += [child] + _below(child)
    return found


def of_node(number):
    return _below(processes.pid(f"n{number}"))


def of_pod(uid):
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            with open(folder + "/cgroup", encoding="ascii") as file:
                if uid in file.read():
                    found.append(int(os.path.basename(folder)))
        except OSError:
            continue
    return found


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def freeze(pids):
    send(pids, signal.SIGSTOP)


def thaw(pids):
    send(reversed(pids), signal.SIGCONT)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def _program(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def is_ours(pid):
    """An agent or a rank, not what the container runtime has in the pod."""
    return _program(pid) in ("dsj-agent", "dsj-train")


def is_rank(pid):
    return alive(pid) and _program(pid) == "dsj-train"
