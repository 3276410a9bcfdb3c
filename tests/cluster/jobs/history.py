"""What happened in a namespace, as the API server tells it: every version of every job and pod, in the one order of
resourceVersions, which all kinds share. A watch that is cut is begun again; what it missed is one step in the history."""
import json
import subprocess
import threading
import time

KINDS = {"job": "/apis/training.dsj.dev/v1alpha1/namespaces/{}/deepspeedjobs", "pod": "/api/v1/namespaces/{}/pods"}


class Change:
    """kind, what (ADDED, MODIFIED, DELETED), object, version; cut: the watch was cut before it, so that others may be missing;
    seen: when it came, by time.monotonic()."""

    def __init__(self, kind, what, thing, cut=False, seen=0.0):
        self.kind, self.what, self.object, self.cut, self.seen = kind, what, thing, cut, seen
        self.version = int(thing["metadata"]["resourceVersion"])
        self.uid, self.name = thing["metadata"]["uid"], thing["metadata"]["name"]


def _told(job):
    """What a job's status says of its last trouble, by the operator or before it by agent 0."""
    status = job.get("status") or {}
    restarting = [c["reason"] for c in status.get("conditions") or [] if c["type"] == "Restarting" and c["status"] == "True"]
    return {"failure": status.get("lastFailure"), "agent": (status.get("training") or {}).get("lastFailure"),
            "restarting": restarting[0] if restarting else None}


def named_after(changes, job, start):
    """Seconds from `start` until the status of that job said something of its troubles that it had not said before; None: not
    yet. A trouble that is over is no new one."""
    before = {}
    for change in sorted(changes, key=lambda entry: entry.version):
        if change.kind != "job" or change.name != job:
            continue
        now = _told(change.object)
        if change.seen >= start and any(now[key] and now[key] != before.get(key) for key in now):
            return change.seen - start
        before = now
    return None


class History:
    """Records from `with` until its end. changes(): so far."""

    def __init__(self, namespace):
        self._namespace = namespace
        self._lock, self._changes, self._processes = threading.Lock(), [], {}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._watch, args=(kind,), daemon=True) for kind in KINDS]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        with self._lock:
            for process in self._processes.values():
                process.kill()
        for thread in self._threads:
            thread.join(10)

    def changes(self):
        with self._lock:
            return sorted(self._changes, key=lambda change: change.version)

    def _watch(self, kind):
        seen, cut = {}, False  # uid: (version, object)
        while not self._over.is_set():
            with self._lock:
                process = self._processes[kind] = subprocess.Popen(
                    ["kubectl", "get", "--raw", KINDS[kind].format(self._namespace) + "?watch=1"],
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            # What is there comes first, each as ADDED; then a gap in which nothing that was there before is told.
            for line in process.stdout:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue
                if event.get("type") not in ("ADDED", "MODIFIED", "DELETED"):
                    continue
                change = Change(kind, event["type"], event["object"], cut, time.monotonic())
                if seen.get(change.uid, -1) >= change.version:
                    continue
                seen[change.uid] = change.version
                with self._lock:
                    self._changes.append(change)
            process.wait()
            cut = True
            self._over.wait(0.3)
