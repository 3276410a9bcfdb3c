"""What the checks beside a real queue share: a real operator, gangs that it makes, and kubelets that the check plays. Control plane
and operator are the real programs; nodes are objects only, and what agents would say is patched into pods and status. (kwok's nodes
would not do: there a deleted pod loses its finalizers, and with Kueue these are half of the matter.)
"""
import contextlib
import json
import os
import subprocess
import sys
import threading
import time

from cases import Report, expect
from chart_check import JOB, Chart
from kube import crds_served, eventually, get, kubectl, patch, run
from settings import HERE, ClusterError

TEAM = "team"
NODES = ("node-1", "node-2", "node-3")  # two workers have room on each
QUIET = 3  # seconds in which something that must not happen would have happened
DONE, RANK_FAILED, PEER_LOST, PREEMPTED = (0, "Completed"), (1, "RankFailed"), (86, "PeerLost"), (87, "Preempted")
# Nodes are ready as long as the check says so.
CONTROLLERS = "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"


def uid_of(thing):
    return thing["metadata"]["uid"]


def ended(pod):
    return pod["status"].get("phase") in ("Succeeded", "Failed")


class Kubelets(threading.Thread):
    """Of all nodes: runs what is bound there, ends what is deleted. A pod of a node that is away is left alone."""

    def __init__(self, nodes):
        """nodes: the labels of each."""
        super().__init__(daemon=True)
        self.away, self.stopped, self.problem = set(), threading.Event(), ""
        for name, labels in nodes.items():
            kubectl("create", "-f", "-", thing={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", **labels}}})
            self.ready(name, True)
            kubectl("patch", "node", name, "--type", "merge", "-p", json.dumps({"spec": {"taints": None}}))

    @staticmethod
    def ready(name, yes):
        room = {"cpu": "2", "memory": "64Gi", "pods": "110"}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        status = {"capacity": room, "allocatable": room, "conditions": [
            {"type": "Ready", "status": "True" if yes else "Unknown", "reason": "Check", "message": "", "lastTransitionTime": now}]}
        kubectl("patch", "node", name, "--subresource=status", "--type", "merge", "-p", json.dumps({"status": status}))

    def run(self):
        while not self.stopped.wait(0.3):
            try:
                for pod in get("pods", "-n", TEAM) or []:
                    self.look_after(pod)
            except (AssertionError, KeyError) as problem:
                self.problem = str(problem)

    def look_after(self, pod):
        node, deleted = pod["spec"].get("nodeName"), pod["metadata"].get("deletionTimestamp")
        if not node or node in self.away:
            return
        if not deleted and pod["status"].get("phase") == "Pending":
            say_state(pod, "Running", {"running": {}}, check=False)
        elif deleted and not ended(pod):
            end(pod, PREEMPTED, check=False)  # as our agent does when it is asked to go
        elif deleted and pod["metadata"].get("deletionGracePeriodSeconds") != 0:
            kubectl("-n", TEAM, "delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0", "--wait=false", check=False)


def say_state(pod, phase, state, check=True):
    containers = [{"name": "worker", "image": "i", "imageID": "", "ready": phase == "Running", "restartCount": 0, "state": state}]
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    kubectl("-n", TEAM, "patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type", "strategic", "-p",
            json.dumps({"metadata": {"uid": uid_of(pod)}, "status": {"phase": phase, "containerStatuses": containers, "conditions": [ready]}}),
            check=check)


def end(pod, words, check=True):
    code, reason = words
    job = get("dsj", pod["metadata"]["labels"]["training.dsj.dev/job-name"], "-n", TEAM) or {}
    attempt = job.get("status", {}).get("training", {}).get("attempt", 0)
    told = {"reason": reason, "step": 3, **({"attempt": attempt} if attempt else {})}
    say_state(pod, "Succeeded" if code == 0 else "Failed", {"terminated": {"exitCode": code, "message": json.dumps(told)}}, check)


class World:
    """An operator beside a queue."""

    scheduler = ""  # of the chart's values and the operator's flags
    nodes = {name: {} for name in NODES}  # with their labels

    def __init__(self, repository, binaries):
        self.binaries, self.chart = binaries, Chart(repository, binaries)
        self.process = self.kubelets = self.access = None
        self.log = os.path.join(self.chart.room, "operator.log")

    def queues(self):
        """Makes them."""
        raise NotImplementedError

    def begin(self):
        for space in ("ops", TEAM):
            kubectl("create", "namespace", space)
        run("helm", "install", "r", self.chart.chart, "-n", "ops", "--set", f"webhook.enabled=false,scheduling.{self.scheduler}=true")
        # The operator is a process of this machine; its pod would take room on a node.
        kubectl("-n", "ops", "scale", "deployment", "--all", "--replicas=0")
        crds_served()
        self.queues()
        token = kubectl("-n", "ops", "create", "token", "r-deepspeedjob", "--duration=4h").stdout.strip()
        self.access = self.chart.config_of("operator", token)
        self.start_operator()
        self.kubelets = Kubelets(self.nodes)
        self.kubelets.start()

    def start_operator(self):
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                [self.chart.operator, "--health-address=127.0.0.1:0", "--no-leader-election", f"--{self.scheduler}=true"], stdout=output,
                stderr=output, env=dict(os.environ, KUBECONFIG=self.access, DSJ_NAMESPACE="ops"))

    def stop_operator(self):
        self.process.terminate()
        self.process.wait(20)

    @contextlib.contextmanager
    def without_operator(self):
        self.stop_operator()
        try:
            yield
        finally:
            self.start_operator()

    def finish(self):
        if self.kubelets:
            self.kubelets.stopped.set()
            self.kubelets.join()
        if self.process:
            self.stop_operator()
            with open(self.log, encoding="utf-8", errors="replace") as log:
                print("".join(log.readlines()[-40:]))


class QueuedGang:
    """One job, a CPU for each worker. It must leave nothing behind."""

    waiting = ""  # the resource by which the queue knows a gang

    def __init__(self, world, name, policy, apart=False, startup=None, size=2, topology=None, **spec):
        self.world, self.name, self.size = world, name, size
        mine = {"labelSelector": {"matchLabels": {"training.dsj.dev/job-name": name}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [mine]}} if apart else {}
        worker = {"name": "worker", "resources": {"requests": {"cpu": "1"}}}
        run_policy = {"schedulingPolicy": policy, **({"startupDeadlineSeconds": startup} if startup else {})}
        self.manifest = dict(JOB, metadata={"name": name, "namespace": TEAM})
        self.manifest["spec"] = dict(JOB["spec"], runPolicy=run_policy, **spec, workers={
            "replicas": size, "slotsPerWorker": 1, **({"topology": topology} if topology else {}),
            "template": {"spec": {"containers": [worker], "affinity": affinity}}},
            failurePolicy={"nodeFailure": {"graceSeconds": 5, "forceDeleteAfterSeconds": 15}})

    def submit(self):
        kubectl("create", "-f", "-", thing=self.manifest)

    def __enter__(self):
        if not self.get():
            self.submit()
        eventually(lambda: len(self.pods()) == self.size, lambda: f"all pods: {self}")
        return self

    def __exit__(self, kind, *_):
        kubectl("-n", TEAM, "delete", "dsj", self.name, "--wait=false", check=False)
        if kind is None:
            self.leaves_nothing()
            return
        for resource in ("pods", self.waiting):  # the next case begins with all of the quota
            for thing in get(resource, "-n", TEAM) or []:
                if thing["metadata"]["name"].startswith(self.name + "-"):
                    name = thing["metadata"]["name"]
                    kubectl("-n", TEAM, "patch", resource, name, "--type", "merge", "-p", '{"metadata":{"finalizers":null}}', check=False)
                    kubectl("-n", TEAM, "delete", resource, name, "--force", "--grace-period=0", "--wait=false", check=False)

    def __str__(self):
        pods = [(pod["metadata"]["name"], pod["metadata"].get("finalizers"), pod["metadata"].get("deletionTimestamp"),
                 pod["spec"].get("nodeName"), pod["status"].get("phase"), bool(pod["spec"].get("schedulingGates"))) for pod in self.pods()]
        units = [(one["metadata"]["name"], one.get("status", {}).get("phase"),
                  [(c["type"], c["status"], c.get("message")) for c in one.get("status", {}).get("conditions", [])]) for one in self.units()]
        return f"job {self.get().get('status')}\n pods {pods}\n {self.waiting} {units}\n kubelets {self.world.kubelets.problem}"

    def units(self):
        """By which the queue knows the gang."""
        raise NotImplementedError

    def groups(self):
        """Names of the groups of all living pods."""
        raise NotImplementedError

    def get(self):
        return get("dsj", self.name, "-n", TEAM) or {}

    def phase(self):
        return self.get().get("status", {}).get("phase")

    def restarts(self):
        return self.get().get("status", {}).get("restarts", {})

    def pods(self):
        return sorted(get("pods", "-n", TEAM, "-l", "training.dsj.dev/job-name=" + self.name) or [],
                      key=lambda pod: (pod["metadata"]["labels"]["training.dsj.dev/replica-index"], pod["metadata"]["creationTimestamp"]))

    def live(self):
        return [pod for pod in self.pods() if not ended(pod) and not pod["metadata"].get("deletionTimestamp")]

    def nodes(self):
        """By worker."""
        return [pod["spec"].get("nodeName") for pod in self.live()]

    def runs(self):
        """All pods are let go together, and run."""
        def whole():
            pods = self.live()
            return len(pods) == self.size and all(pod["status"].get("phase") == "Running" for pod in pods)
        eventually(whole, lambda: f"all run: {self}")
        expect(len(self.groups()) == 1, lambda: f"two groups: {self}")
        return self.live()

    def trains(self, attempt=1):
        pods = self.runs()
        kubectl("-n", TEAM, "patch", "dsj", self.name, "--subresource=status", "--type", "merge", "-p",
                json.dumps({"status": {"training": {"attempt": attempt, "step": 1}}}))
        eventually(lambda: self.phase() == "Running", lambda: f"Running: {self}")
        return pods

    def anew(self, pods, count=1):
        """So many of the pods have living successors."""
        before = {uid_of(pod) for pod in pods}
        eventually(lambda: len({uid_of(pod) for pod in self.live()} - before) == count, lambda: f"{count} new of {before}: {self}")

    def completes(self):
        for pod in self.live():
            end(pod, DONE)
        eventually(lambda: self.phase() == "Complete", lambda: f"Complete: {self}")

    def suspend(self, yes):
        patch("dsj", self.name, {"spec": {"suspend": yes}}, TEAM)

    def suspended(self):
        """While it trains."""
        self.suspend(True)
        for pod in self.live():
            end(pod, PREEMPTED)
        eventually(lambda: self.phase() == "Suspended", lambda: f"suspended: {self}")

    def resumed_behind(self, other):
        """Waits for the room that the other one has taken meanwhile."""
        other.trains()
        self.suspend(False)
        self.waits()
        other.completes()
        self.trains(2)
        expect(self.restarts().get("counted", 0) == 0, lambda: f"not charged: {self}")
        self.completes()

    def waits(self):
        """None of its pods is let go."""
        raise NotImplementedError

    def leaves_nothing(self):
        eventually(lambda: not self.pods() and not self.units(), lambda: f"pods or {self.waiting} are left: {self}", 120)


def described(world, name):
    words = [os.path.join(world.binaries, "kubectl-dsj"), "describe", name, "-n", TEAM]
    return run(*words).stdout


def check(suite, make_world, cases, need, option):
    """The exit code of a check: REPOSITORY BIN GTEST_REPORT [CASE...]. need() raises ClusterError where the queue cannot run or be had."""
    (repository, binaries, path), chosen = sys.argv[1:4], sys.argv[4:]
    report = Report(suite, path)
    cases = [case for case in cases if not chosen or case.__name__ in chosen]
    if "DSJ_CLUSTER" not in os.environ:
        try:
            need()
        except ClusterError as problem:
            for case in cases:
                report.skipped(case.__name__, problem)
            return report.write()
        return subprocess.run([os.path.join(HERE, "cluster.py"), "run", option, sys.executable, *sys.argv],
                              env=dict(os.environ, CONTROLLER_FLAGS=CONTROLLERS), check=False).returncode
    world = make_world(repository, binaries)
    try:
        world.begin()
        for case in cases:
            report.run(case.__name__, lambda case=case: case(world))
    finally:
        world.finish()
    return report.write()
