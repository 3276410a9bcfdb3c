#!/usr/bin/env python3
"""The agent against a real API server: its tokens, its keys, its watch, its policy; pods are objects there and processes here.

Usage: tests/cluster/cluster.py run --api pod_cluster_check.py REPOSITORY BIN GTEST_REPORT. Exit 1 on a failure. Needs helm and
kubectl on PATH; without them everything is skipped, loudly.
"""
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from chart_check import JOB  # noqa: E402
from cases import Report, expect  # noqa: E402
from kube import LONG, crds_served, eventually, kubectl, run  # noqa: E402

STEPS = 400
JOIN_PORT = 29400
NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}."
WORKER_ZERO = NET + "10"
KEYS = "var/run/secrets/dsj-keys"


def make_key(folder):
    """What the operator makes for worker 0's host; here the certificate is its own authority."""
    os.makedirs(folder)
    name = {what: os.path.join(folder, what + ".pem") for what in ("chain", "key")}
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=tune",
        "-addext", f"subjectAltName=IP:{WORKER_ZERO}", "-keyout", name["key"], "-out", name["chain"])


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class Pod:
    """A pod object and the process that plays its first container."""

    def __init__(self, room, binaries, uid, worker, incarnation=1, audience=None, steps=STEPS, begin=True):
        self.name = f"tune-worker-{worker}-{incarnation}"
        made = kubectl("create", "-o", "json", "-f", "-", thing={
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name, "namespace": "team"},
            "spec": {"serviceAccountName": "tune-worker", "containers": [{"name": "worker", "image": "none"}]}})
        bound = ["--bound-object-kind", "Pod", "--bound-object-name", self.name,
                 "--bound-object-uid", json.loads(made.stdout)["metadata"]["uid"]]
        token = ["-n", "team", "create", "token", "tune-worker", *bound]
        self.root = os.path.join(room, self.name)
        for folder in ("etc/dsj", "var/run/secrets/dsj", KEYS, "run/dsj", "dev"):
            os.makedirs(os.path.join(self.root, folder))
        for file in ("chain.pem", "key.pem") if worker == 0 else ():
            shutil.copy(os.path.join(room, "keys", file), os.path.join(self.root, KEYS))
        self.write("var/run/secrets/dsj/token",
                   kubectl(*token, "--audience", audience or "training.dsj.dev/job/" + uid).stdout.strip())
        admin = json.loads(kubectl("config", "view", "--raw", "-o", "json").stdout)
        self.write("kubeconfig", json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": admin["clusters"][0]["cluster"]}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": kubectl(*token).stdout.strip()}}]}))
        self.write("etc/dsj/job.json", json.dumps({
            "job": {"name": "tune", "attempt": 1, "worldSize": 2, "outputDir": os.path.join(room, "out"), "dsConfig": {},
                    "dsConfigSource": "spec.deepspeed.config", "training": {"maxSteps": steps, "saveSteps": 50}},
            "replicas": 2, "slots": 1, "restartLimit": 3, "saveTimeoutMs": 60000, "stepTimeoutMs": 60000}))
        # dsj-train is what lies beside the agent: here a fake one.
        os.makedirs(os.path.join(self.root, "bin"))
        shutil.copy(os.path.join(binaries, "dsj-agent"), os.path.join(self.root, "bin/dsj-agent"))
        os.symlink(os.path.join(binaries, "fake_rank"), os.path.join(self.root, "bin/dsj-train"))
        self.address = NET + str(10 + worker)
        self.told = {"PATH": "/usr/bin:/bin", "KUBECONFIG": os.path.join(self.root, "kubeconfig"), "FAKE_STEP_MS": "20",
                     "DSJ_JOB_NAME": "tune", "DSJ_NAMESPACE": "team", "DSJ_JOB_UID": uid, "DSJ_WORKER": str(worker),
                     "DSJ_INCARNATION": str(incarnation), "DSJ_REVISION": "r1", "DSJ_WORKER_ZERO_HOST": WORKER_ZERO,
                     "DSJ_POD_NAME": self.name, "DSJ_POD_IP": self.address, "DSJ_SERVICE_ACCOUNT": "tune-worker",
                     "DSJ_JOIN_AUTHORITY": text_of(os.path.join(room, "keys", "chain.pem"))}
        self.process = None
        if begin:
            self.begin()

    def begin(self):
        with open(os.path.join(self.root, "output"), "wb") as output:
            self.process = subprocess.Popen([os.path.join(self.root, "bin/dsj-agent"), "--pod", "--root", self.root],
                                            stdout=output, stderr=output, env=self.told)

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def write(self, path, text):
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)

    def output(self):
        with open(os.path.join(self.root, "output"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def ends(self, code):
        try:
            got = self.process.wait(LONG)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end: {self.output()[-1500:]}") from None
        expect(got == code, f"{self.name} ended with {got}, not {code}: {self.output()[-1500:]}")
        with open(os.path.join(self.root, "dev/termination-log"), encoding="utf-8") as file:
            return json.load(file)


class Cases:
    def __init__(self, repository, binaries):
        self.repository, self.binaries = repository, binaries
        self.room, self.uid, self.pods = "", "", []

    def job(self):
        return json.loads(kubectl("-n", "team", "get", "dsj", "tune", "--show-managed-fields", "-o", "json").stdout)

    def training(self):
        return self.job().get("status", {}).get("training", {})

    def soon(self, holds, what):
        eventually(holds, lambda: f"{what}: {[pod.output()[-800:] for pod in self.pods]}")

    def begin(self):
        if not self.room:
            run("helm", "install", "r", os.path.join(self.repository, "charts/deepspeedjob"), "-n", "ops", "--create-namespace")
            crds_served()
        self.finish()
        self.room = tempfile.mkdtemp()
        make_key(os.path.join(self.room, "keys"))
        kubectl("create", "namespace", "team", check=False)
        for words in (["serviceaccount", "tune-worker"],
                      ["role", "tune-worker", "--verb=get,list,watch", "--resource=deepspeedjobs.training.dsj.dev", "--resource-name=tune"],
                      ["role", "tune-status", "--verb=get,patch", "--resource=deepspeedjobs.training.dsj.dev/status", "--resource-name=tune"],
                      ["rolebinding", "tune-worker", "--role=tune-worker", "--serviceaccount=team:tune-worker"],
                      ["rolebinding", "tune-status", "--role=tune-status", "--serviceaccount=team:tune-worker"]):
            kubectl("-n", "team", "create", *words, check=False)
        made = kubectl("create", "-o", "json", "-f", "-", thing=dict(JOB, metadata={"name": "tune", "namespace": "team"}))
        self.uid = json.loads(made.stdout)["metadata"]["uid"]

    def start(self, *args, **kwargs):
        self.pods.append(Pod(self.room, self.binaries, self.uid, *args, **kwargs))
        return self.pods[-1]

    def finish(self):
        for pod in self.pods:
            if pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait()
        self.pods = []
        if self.room:
            kubectl("-n", "team", "delete", "dsj,pods", "--all", "--force", "--grace-period=0", check=False)
            shutil.rmtree(self.room, ignore_errors=True)

    def to_the_end(self):
        """Real tokens, real keys, a real server-side apply behind the agent policy; the server crashes in the middle."""
        zero, one = self.start(0), self.start(1)
        self.soon(lambda: self.training().get("step", 0) > 20, "no step in the status")
        server = os.environ["DSJ_CLUSTER"]
        run(server, "restart", "apiserver")
        expect(zero.ends(0)["reason"] == "Completed" and one.ends(0)["reason"] == "Completed", "not completed")
        status = self.job()["status"]
        expect(status["training"]["attempt"] == 1 and status["training"]["step"] == STEPS, status["training"])
        expect(status["checkpoint"]["lastSaved"]["step"] == STEPS, status["checkpoint"])
        managers = {entry["manager"] for entry in self.job()["metadata"]["managedFields"] if entry.get("subresource") == "status"}
        expect(managers == {"dsj-agent", "dsj-agent-config"}, managers)

    def a_foreign_audience(self):
        """A token of the right pod and account, but for the API server: it does not join."""
        self.start(0)
        one = self.start(1, audience="https://kubernetes.default.svc.cluster.local")
        self.soon(lambda: "answered 403" in one.output(), "it is not refused")
        expect("another audience" in one.output(), one.output()[-500:])
        expect("attempt" not in self.training(), "an attempt without its second worker")

    def a_stranger_as_worker_zero(self):
        """Who has worker 0's address and not its key gets no token; the worker says so and joins the real one later."""
        make_key(os.path.join(self.room, "stranger"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*(os.path.join(self.room, "stranger", file) for file in ("chain.pem", "key.pem")))
        callers, got = [], []
        with socket.create_server((WORKER_ZERO, JOIN_PORT)) as listener:
            listener.settimeout(1)
            over = threading.Event()

            def serve():
                while not over.is_set():
                    try:
                        peer, _ = listener.accept()
                        callers.append(peer)
                        with context.wrap_socket(peer, server_side=True) as secured:
                            got.append(secured.recv(4096))
                    except OSError:
                        pass  # nobody came, or the caller broke it off
            thread = threading.Thread(target=serve)
            thread.start()
            one = self.start(1)
            try:
                self.soon(lambda: "did not prove" in one.output() and "no token was sent" in one.output(), "a stranger as worker 0 is believed")
                self.soon(lambda: len(callers) > 2, "it does not try again")
            finally:
                over.set()
                thread.join()
        expect(not any(got), f"the stranger got {got}")
        zero = self.start(0)
        expect(zero.ends(0)["reason"] == "Completed" and one.ends(0)["reason"] == "Completed", "not completed")
        print(f"refused a stranger as worker 0, asked {len(callers)} times")

    def attacks_on_the_join_port(self):
        """Real tokens of the cluster in wrong hands, bodies and connections that mean no good; the job trains to its end meanwhile."""
        zero = self.start(0)
        one = Pod(self.room, self.binaries, self.uid, 1, steps=STEPS, begin=False)
        host = zero.address
        anyone = ssl.create_default_context()  # an attacker asks no server for proof
        anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
        kubectl("-n", "team", "create", "serviceaccount", "intruder", check=False)

        def token(account, pod=None, audience=None):
            words = ["-n", "team", "create", "token", account, "--audience", audience or "training.dsj.dev/job/" + self.uid]
            if pod:
                made = json.loads(kubectl("create", "-o", "json", "-f", "-", thing={
                    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "team"},
                    "spec": {"serviceAccountName": account, "containers": [{"name": "worker", "image": "none"}]}}).stdout)
                words += ["--bound-object-kind", "Pod", "--bound-object-name", pod, "--bound-object-uid", made["metadata"]["uid"]]
            return kubectl(*words).stdout.strip()

        def beat(bearer, length=None):
            """The answer's status to a beat in worker 1's name."""
            body = json.dumps({"worker": 1, "incarnation": 1, "sequence": 1, "slots": 1, "attempt": 0, "fence": 0, "stopRequested": True,
                               "leaving": True, "ranks": []})
            with anyone.wrap_socket(socket.create_connection((host, JOIN_PORT), LONG)) as peer:
                peer.sendall(f"POST /v1/beat HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {bearer}\r\n"
                             f"Content-Length: {length or len(body)}\r\n\r\n{body}".encode())
                return int(peer.makefile("rb").readline().split()[1])

        def listens():
            try:
                return beat("x") == 401
            except OSError:
                return False
        self.soon(listens, "worker 0 does not listen")
        attacks = [("no token", "", 401), ("a foreign account's pod", token("intruder", "intruder-1"), 403),
                   ("a foreign account's pod with a worker's name", token("intruder", "tune-worker-3-1"), 403),
                   ("the job's account without a pod", token("tune-worker"), 403),
                   ("the job's account in a foreign pod", token("tune-worker", "thief"), 403),
                   ("a token for an earlier job of that name", token("tune-worker", "old", "training.dsj.dev/job/" + "0" * 36), 403),
                   ("a token for the API server", token("tune-worker", "api", "https://kubernetes.default.svc.cluster.local"), 403)]
        for what, bearer, status in attacks:
            got = beat(bearer)
            while got == 503:  # the cluster's keys are being fetched
                time.sleep(0.2)
                got = beat(bearer)
            expect(got == status, f"{what}: {got}, not {status}")
            print(f"refused {what}: {got}")
        good = one.read("var/run/secrets/dsj/token")
        expect(beat(good, 1 << 30) == 413, "a gigabyte is not refused")
        slow = [socket.create_connection((host, JOIN_PORT), LONG) for _ in range(200)]
        for peer in slow:
            try:
                peer.sendall(b"POST /v1/be")
            except OSError:
                pass  # it made room for another
        one.begin()
        self.pods.append(one)
        expect(zero.ends(0)["reason"] == "Completed" and one.ends(0)["reason"] == "Completed", "not completed")
        for peer in slow:
            peer.close()
        print(f"result: pod: {len(attacks) + 2} attacks on the join port, and the job is Complete")

    def suspension(self):
        zero, one = self.start(0, steps=100_000), self.start(1, steps=100_000)
        self.soon(lambda: self.training().get("step", 0) > 5, "no step in the status")
        kubectl("-n", "team", "patch", "dsj", "tune", "--type", "merge", "-p", '{"spec": {"suspend": true}}')
        expect(zero.ends(87)["reason"] == "Preempted" and one.ends(87)["reason"] == "Preempted", "not preempted")
        status = self.job()["status"]
        expect(status["training"]["stopStep"] == status["checkpoint"]["lastSaved"]["step"], status)

    def a_stale_agent(self):
        """Stopped while another took over, it goes on and writes nothing."""
        zero, _ = self.start(0, steps=100_000), self.start(1, steps=100_000)
        self.soon(lambda: self.training().get("step", 0) > 5, "no step in the status")
        os.kill(zero.process.pid, signal.SIGSTOP)
        kubectl("-n", "team", "patch", "dsj", "tune", "--subresource=status", "--type", "merge", "-p",
                '{"status": {"training": {"attempt": 2, "step": 1}}}')
        before = self.training()
        os.kill(zero.process.pid, signal.SIGCONT)
        expect(zero.ends(86)["reason"] == "Superseded", "it goes on")
        expect(self.training() == before, f"{self.training()} after {before}")


def main():
    cases, report = Cases(sys.argv[1], sys.argv[2]), Report("PodCluster", sys.argv[3])
    for case in (cases.to_the_end, cases.a_foreign_audience, cases.a_stranger_as_worker_zero, cases.attacks_on_the_join_port, cases.suspension, cases.a_stale_agent):
        report.run(case.__name__, lambda case=case: (cases.begin(), case()), tools=("helm", "kubectl"))
    cases.finish()
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
