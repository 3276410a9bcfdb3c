"""The cluster's processes: each is remembered in STATE/processes/NAME.json with its command, its pid and the time the kernel
says it started at, so that a pid given to another process is never taken for ours."""
import json
import os
import signal
import subprocess
import time

from settings import LOGS, LONG, STATE, ClusterError

FOLDER = os.path.join(STATE, "processes")


def _started_at(pid):
    """Of a running process; None when there is none, or when it has ended and only waits to be reaped. Its first thread may
    have ended before the others: they still hold its ports."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ended = fields[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return None
    return None if ended else fields[19]


def running(number):
    return _started_at(number) is not None


def _record(name):
    try:
        with open(os.path.join(FOLDER, name + ".json"), encoding="utf-8") as file:
            return json.load(file)
    except OSError:
        return None


def names():
    return sorted(file[:-5] for file in os.listdir(FOLDER)) if os.path.isdir(FOLDER) else []


def pid(name):
    """None when it does not run."""
    record = _record(name)
    return record["pid"] if record and record["started"] and _started_at(record["pid"]) == record["started"] else None


def start(name, command):
    """Starts it unless it runs; its output is appended to LOGS/NAME.log."""
    if pid(name):
        return
    os.makedirs(FOLDER, exist_ok=True)
    os.makedirs(LOGS, exist_ok=True)
    with open(os.path.join(LOGS, name + ".log"), "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    part = os.path.join(FOLDER, "." + name)
    with open(part, "w", encoding="utf-8") as file:
        json.dump({"command": command, "pid": process.pid, "started": _started_at(process.pid)}, file)
    os.replace(part, os.path.join(FOLDER, name + ".json"))


def start_again(name):
    record = _record(name)
    if not record:
        raise ClusterError(f"there is no process {name}; there are: {' '.join(names())}")
    start(name, record["command"])


def kill(name):
    """SIGKILL, as a crash would; returns when it is gone. Its command stays known to start_again()."""
    number = pid(name)
    if number:
        os.kill(number, signal.SIGKILL)
        wait_for(LONG, f"end of {name}", lambda: not pid(name))


def forget(name):
    kill(name)
    path = os.path.join(FOLDER, name + ".json")
    if os.path.exists(path):
        os.remove(path)


def last_words(name, lines=8):
    try:
        with open(os.path.join(LOGS, name + ".log"), encoding="utf-8", errors="replace") as log:
            return "".join(log.readlines()[-lines:])
    except OSError:
        return ""


def resident_kib(number):
    """Of the process and of all below it."""
    total = 0
    try:
        with open(f"/proc/{number}/status", encoding="ascii", errors="replace") as status:
            total = next((int(line.split()[1]) for line in status if line.startswith("VmRSS")), 0)
        for task in os.listdir(f"/proc/{number}/task"):
            with open(f"/proc/{number}/task/{task}/children", encoding="ascii") as children:
                total += sum(resident_kib(child) for child in children.read().split())
    except OSError:
        pass
    return total


def wait_for(seconds, what, condition, process=None):
    """Until condition() is true. With `process`: fails at once when that process has ended, with its last words."""
    end = time.monotonic() + seconds
    while not condition():
        if process and not pid(process):
            raise ClusterError(f"{process} has ended while waiting for {what}:\n{last_words(process)}")
        if time.monotonic() > end:
            raise ClusterError(f"no {what} within {seconds} s; logs are in {LOGS}")
        time.sleep(0.05)
