"""What operator_bench.py needs of an API server: kept connections, many at once, and a watch that notes times."""
import http.client
import json
import os
import ssl
import threading
import time
import urllib.parse


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


KEPT = []  # connections of earlier loops: opening one costs more than a create


def at_once(threads, work, do):
    """do(api, item) for each item, on so many threads with a connection each; the first failure is raised."""
    items, lock, failures = iter(work), threading.Lock(), []
    while len(KEPT) < threads:
        KEPT.append(Api())

    def run(api):
        while not failures:
            with lock:
                item = next(items, None)
            if item is None:
                return
            try:
                do(api, item)
            except Exception as error:  # pylint: disable=broad-except
                failures.append(error)
    running = [threading.Thread(target=run, args=[KEPT[i]]) for i in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


class Api:
    """One kept connection with the admin's certificate. For one thread."""

    def __init__(self):
        state = os.environ["DSJ_CLUSTER_STATE"]
        with open(os.environ["KUBECONFIG"], encoding="ascii") as file:
            address = urllib.parse.urlparse(file.read().split('server: "', 1)[1].split('"', 1)[0])
        self.context = ssl.create_default_context(cafile=f"{state}/pki/ca.crt")
        self.context.load_cert_chain(f"{state}/pki/admin.crt", f"{state}/pki/admin.key")
        self.host, self.port, self.kept = address.hostname, address.port, None

    def connect(self):
        return http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=120)

    def _send(self, method, path, body, kind):
        if self.kept is None:
            self.kept = self.connect()
        try:
            self.kept.request(method, path, body, {"Content-Type": kind} if body else {})
            answer = self.kept.getresponse()
        except (http.client.HTTPException, OSError):  # the server had closed it
            self.kept = self.connect()
            self.kept.request(method, path, body, {"Content-Type": kind} if body else {})
            answer = self.kept.getresponse()
        return answer.status, answer.read()

    def call(self, method, path, thing=None, check=True, kind="application/json"):
        body = thing if isinstance(thing, bytes) else json.dumps(thing).encode() if thing is not None else None
        status, text = self._send(method, path, body, kind)
        if check and status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {text[:300]!r}")
        return status, text

    def apply(self, path, text):
        self.call("PATCH", path + "?fieldManager=bench&force=true", text, kind="application/apply-patch+yaml")

    def merge(self, path, patch):
        self.call("PATCH", path, patch, kind="application/merge-patch+json")

    def text(self, path):
        return self.call("GET", path)[1].decode()

    def list(self, path, labels):
        found = json.loads(self.text(f"{path}?labelSelector={urllib.parse.quote(labels)}"))
        return [dict(one, apiVersion=found["apiVersion"], kind=found["kind"].removesuffix("List")) for one in found["items"]]

    def count(self, path):
        found = json.loads(self.text(path + "?limit=1"))
        return len(found["items"]) + found["metadata"].get("remainingItemCount", 0)


class PodWatch:
    """Notes when each pod of a selector was there, from now on. A server that drops a slow watcher is asked again: what came
    meanwhile counts as of then."""
    ACCEPT = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}  # small lines

    def __init__(self, api, path, labels):
        self.path, self.labels, self.api = path, urllib.parse.quote(labels), Api()
        self.version = json.loads(api.text(path + "?limit=1"))["metadata"]["resourceVersion"]
        self.seen, self.times, self.changed, self.closed = set(), [], threading.Condition(), False
        self.connection = None
        self.open()
        self.thread = threading.Thread(target=self._read, daemon=True)

    def open(self):
        self.connection = self.api.connect()
        self.connection.request("GET", f"{self.path}?watch=true&resourceVersion={self.version}&labelSelector={self.labels}",
                                headers=self.ACCEPT)
        self.answer = self.connection.getresponse()

    def _note(self, uid):
        now = time.monotonic()
        with self.changed:
            if uid not in self.seen:
                self.times.append(now)
            self.seen.add(uid)
            self.changed.notify_all()

    def _read(self):
        while not self.closed:
            try:
                for line in self.answer:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    self._note(event["object"]["metadata"]["uid"])
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                pass
            if self.closed:
                return
            found = json.loads(self.api.text(f"{self.path}?labelSelector={self.labels}"))
            for one in found["items"]:
                self._note(one["metadata"]["uid"])
            self.version = found["metadata"]["resourceVersion"]
            self.open()

    def __enter__(self):
        self.thread.start()
        return self

    def wait(self, count, seconds=600):
        """The time at which the count-th pod was there."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.times) >= count, seconds):
                raise RuntimeError(f"{len(self.times)} of {count} pods within {seconds} s")
            return self.times[count - 1]

    def __exit__(self, *_):
        self.closed = True
        if self.connection.sock:
            self.connection.sock.close()
