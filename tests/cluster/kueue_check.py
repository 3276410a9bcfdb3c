#!/usr/bin/env python3
"""Our operator beside a real Kueue: gangs that wait for quota, go on, are lost, suspended and preempted. Control plane, operator
and Kueue are the real programs; the check is the kubelet of nodes that are objects only, and what agents would say. (kwok's nodes
would not do: there a deleted pod loses its finalizers, and these are half of what Kueue is about.)

Usage: kueue_check.py REPOSITORY BIN GTEST_REPORT [CASE...]. Makes its own cluster, or takes that of cluster.py env. Where Kueue
cannot run or cannot be had everything is skipped, loudly. Exit 1 on a failure.
"""
import json
import os
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support"), os.path.join(HERE, "../run")]
from cases import Report, expect  # noqa: E402
from chart_check import JOB, Chart  # noqa: E402
from kube import condition_of, crds_served, eventually, get, holds, kubectl, patch, run  # noqa: E402
import kueue  # noqa: E402
import programs  # noqa: E402
from settings import ClusterError  # noqa: E402

TEAM = "team"
NODES = ("node-1", "node-2", "node-3")
DEADLINE = 30
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

    def __init__(self):
        super().__init__(daemon=True)
        self.away, self.stopped, self.problem = set(), threading.Event(), ""
        for name in NODES:
            kubectl("create", "-f", "-", thing={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name}}})
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
    """Kueue with quota for one gang of two, and the operator."""

    def __init__(self, repository, binaries):
        self.binaries, self.chart = binaries, Chart(repository, binaries)
        self.process = self.kubelets = None
        self.log = os.path.join(self.chart.room, "operator.log")

    def begin(self):
        for space in ("ops", TEAM):
            kubectl("create", "namespace", space)
        run("helm", "install", "r", self.chart.chart, "-n", "ops", "--set", "webhook.enabled=false", "--set", "scheduling.kueue=true")
        crds_served()
        version = "kueue.x-k8s.io/v1beta2"
        flavor = {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "any"}}
        quota = [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]
        queue = {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": "gpus"},
                 "spec": {"namespaceSelector": {}, "resourceGroups": quota, "preemption": {"withinClusterQueue": "LowerPriority"}}}
        local = {"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": "research", "namespace": TEAM}, "spec": {"clusterQueue": "gpus"}}
        urgent = {"apiVersion": version, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
        for thing in (flavor, queue, local, urgent):
            kubectl("create", "-f", "-", thing=thing)
        config = self.chart.config_of("operator", kubectl("-n", "ops", "create", "token", "r-deepspeedjob", "--duration=4h").stdout.strip())
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen(
                [self.chart.operator, "--health-address=127.0.0.1:0", "--no-leader-election", "--kueue=true"], stdout=output, stderr=output,
                env=dict(os.environ, KUBECONFIG=config, DSJ_NAMESPACE="ops"))
        self.kubelets = Kubelets()
        self.kubelets.start()

    def finish(self):
        if self.kubelets:
            self.kubelets.stopped.set()
            self.kubelets.join()
        if self.process:
            self.process.terminate()
            self.process.wait(20)
            with open(self.log, encoding="utf-8", errors="replace") as log:
                print("".join(log.readlines()[-40:]))


class Gang:
    """One job of two workers, a CPU each: as much as there is quota. It must leave nothing behind."""

    def __init__(self, world, name, priority="", apart=False, startup=None, **spec):
        self.world, self.name = world, name
        mine = {"labelSelector": {"matchLabels": {"training.dsj.dev/job-name": name}}, "topologyKey": "kubernetes.io/hostname"}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [mine]}} if apart else {}
        worker = {"name": "worker", "resources": {"requests": {"cpu": "1"}}}
        policy = {"scheduler": "kueue", "queue": "research", **({"priorityClass": priority} if priority else {})}
        run_policy = {"schedulingPolicy": policy, **({"startupDeadlineSeconds": startup} if startup else {})}
        self.manifest = dict(JOB, metadata={"name": name, "namespace": TEAM})
        self.manifest["spec"] = dict(JOB["spec"], runPolicy=run_policy, **spec, workers={
            "replicas": 2, "slotsPerWorker": 1, "template": {"spec": {"containers": [worker], "affinity": affinity}}},
            failurePolicy={"nodeFailure": {"graceSeconds": 5, "forceDeleteAfterSeconds": 15}})

    def __enter__(self):
        kubectl("create", "-f", "-", thing=self.manifest)
        eventually(lambda: len(self.pods()) == 2, lambda: f"two pods: {self}")
        return self

    def __exit__(self, kind, *_):
        kubectl("-n", TEAM, "delete", "dsj", self.name, "--wait=false", check=False)
        if kind is None:
            self.leaves_nothing()
            return
        for resource in ("pods", "workloads"):  # the next case begins with all of the quota
            for thing in get(resource, "-n", TEAM) or []:
                if thing["metadata"]["name"].startswith(self.name + "-"):
                    name = thing["metadata"]["name"]
                    kubectl("-n", TEAM, "patch", resource, name, "--type", "merge", "-p", '{"metadata":{"finalizers":null}}', check=False)
                    kubectl("-n", TEAM, "delete", resource, name, "--force", "--grace-period=0", "--wait=false", check=False)

    def __str__(self):
        pods = [(pod["metadata"]["name"], pod["metadata"].get("finalizers"), pod["metadata"].get("deletionTimestamp"),
                 pod["spec"].get("nodeName"), pod["status"].get("phase"), bool(pod["spec"].get("schedulingGates"))) for pod in self.pods()]
        groups = [(one["metadata"]["name"], [(c["type"], c["status"], c.get("message")) for c in one.get("status", {}).get("conditions", [])])
                  for one in self.workloads()]
        return f"job {self.get().get('status')}\n pods {pods}\n workloads {groups}\n kubelets {self.world.kubelets.problem}"

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

    def workloads(self):
        return [one for one in get("workloads.kueue.x-k8s.io", "-n", TEAM) or [] if one["metadata"]["name"].startswith(self.name + "-")]

    def workload(self, number):
        return get("workloads.kueue.x-k8s.io", f"{self.name}-kueue-{number}", "-n", TEAM) or {}

    def groups(self):
        return {pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] for pod in self.live()}

    def holds_quota(self):
        return [one["metadata"]["name"] for one in self.workloads()
                if holds(one, "QuotaReserved") and not holds(one, "Finished")]

    def runs(self):
        """Both pods are let go together, and run."""
        def both():
            pods = self.live()
            return len(pods) == 2 and all(pod["status"].get("phase") == "Running" for pod in pods)
        eventually(both, lambda: f"both run: {self}")
        expect(len(self.groups()) == 1, lambda: f"two groups: {self}")
        return self.live()

    def trains(self, attempt=1):
        pods = self.runs()
        kubectl("-n", TEAM, "patch", "dsj", self.name, "--subresource=status", "--type", "merge", "-p",
                json.dumps({"status": {"training": {"attempt": attempt, "step": 1}}}))
        eventually(lambda: self.phase() == "Running", lambda: f"Running: {self}")
        return pods

    def waits(self):
        """All pods behind Kueue's gate, and it stays so."""
        def gated():
            pods = self.live()
            return len(pods) == 2 and all(pod["spec"].get("schedulingGates") for pod in pods) and not self.holds_quota() and self.workloads()
        eventually(gated, lambda: f"waits: {self}")
        time.sleep(QUIET)
        expect(gated(), lambda: f"does not wait any more: {self}")

    def completes(self):
        for pod in self.live():
            end(pod, DONE)
        eventually(lambda: self.phase() == "Complete", lambda: f"Complete: {self}")

    def gives_back(self):
        eventually(lambda: not self.holds_quota(), lambda: f"quota is given back: {self}")

    def leaves_nothing(self):
        eventually(lambda: not self.pods() and not self.workloads(), lambda: f"pods or Workloads are left: {self}", 120)


def described(world, name):
    words = [os.path.join(world.binaries, "kubectl-dsj"), "describe", name, "-n", TEAM]
    return run(*words).stdout


def a_gang_waits_and_starts_when_another_ends(world):
    with Gang(world, "first") as first:
        first.trains()
        admitted = condition_of(first.workload(1), "Admitted")
        expect(admitted.get("status") == "True" and first.workload(1)["spec"]["podSets"][0]["count"] == 2, lambda: f"one Workload of two: {first}")
        with Gang(world, "second", startup=DEADLINE) as second, Gang(world, "third") as third:
            begin = time.monotonic()
            second.waits()
            third.waits()
            expect(second.phase() == "Pending" and "startTime" not in second.get()["status"], lambda: f"time passes in the queue: {second}")
            eventually(lambda: "LocalQueue research: 0 jobs before it, 0 jobs in the ClusterQueue" in described(world, "second"),
                       lambda: described(world, "second"))
            said = described(world, "third")
            expect("LocalQueue research: 1 job before it, 1 job in the ClusterQueue" in said, said)
            expect("insufficient unused quota" in said, said)
            print("result: kueue: " + next(line for line in said.splitlines() if "LocalQueue" in line))
            time.sleep(max(0, begin + DEADLINE + QUIET - time.monotonic()))
            first.completes()
            eventually(lambda: holds(first.workload(1), "Finished"), lambda: f"Kueue knows that it is done: {first}")
            second.trains()
            expect("startTime" in second.get()["status"], lambda: f"its time begins: {second}")
            third.waits()
            second.completes()
            third.trains()
            third.completes()


def a_lost_worker_joins_its_group_again(world):
    with Gang(world, "one") as gang:
        pods = gang.trains()
        end(pods[1], RANK_FAILED)
        eventually(lambda: len({uid_of(pod) for pod in gang.live()} - {uid_of(pod) for pod in pods}) == 1, lambda: f"a new worker 1: {gang}")
        gang.trains(2)
        expect(gang.groups() == {"one-kueue-1"} and gang.holds_quota() == ["one-kueue-1"], lambda: f"the same group: {gang}")
        gang.completes()
        gang.gives_back()


def a_gang_that_lost_all_gets_a_new_group(world):
    with Gang(world, "all") as gang:
        pods = gang.trains()
        end(pods[1], RANK_FAILED)
        end(pods[0], PEER_LOST)
        eventually(lambda: gang.groups() and "all-kueue-1" not in gang.groups() or len(gang.live()) == 2, lambda: f"new pods: {gang}")
        gang.trains(2)
        expect(len(gang.holds_quota()) == 1, lambda: f"quota once: {gang}")
        expect(gang.restarts().get("counted") == 1, lambda: f"charged once: {gang}")
        gang.completes()
        gang.gives_back()


def a_node_is_lost(world):
    with Gang(world, "lost", apart=True) as gang:
        pods = gang.trains()
        node = pods[1]["spec"]["nodeName"]
        world.kubelets.away.add(node)
        Kubelets.ready(node, False)
        kubectl("cordon", node)
        try:
            eventually(lambda: uid_of(pods[1]) not in [uid_of(pod) for pod in gang.pods()], lambda: f"the lost pod goes: {gang}")
            gang.trains(2)
        finally:
            world.kubelets.away.clear()
            Kubelets.ready(node, True)
            kubectl("uncordon", node)
        gang.completes()
        gang.gives_back()


def suspending_gives_quota_back(world):
    with Gang(world, "here") as here:
        here.trains()
        with Gang(world, "there") as there:
            there.waits()
            patch("dsj", "there", {"spec": {"suspend": True}}, TEAM)  # in the queue
            eventually(lambda: there.phase() == "Suspended" and not there.pods(), lambda: f"leaves the queue: {there}")
            eventually(lambda: not there.workloads(), lambda: f"no Workload waits without pods: {there}")
            patch("dsj", "there", {"spec": {"suspend": False}}, TEAM)
            there.waits()
            patch("dsj", "here", {"spec": {"suspend": True}}, TEAM)  # while it trains
            for pod in here.live():
                end(pod, PREEMPTED)
            eventually(lambda: here.phase() == "Suspended", lambda: f"suspended: {here}")
            here.gives_back()
            there.trains()
            patch("dsj", "here", {"spec": {"suspend": False}}, TEAM)
            here.waits()
            there.completes()
            here.trains(2)
            expect(here.restarts().get("counted", 0) == 0, lambda: f"not charged: {here}")
            here.completes()


def a_preempted_gang_goes_back_to_the_queue(world):
    with Gang(world, "low", backoffLimit=0) as low:
        low.trains()
        with Gang(world, "high", "urgent") as high:
            high.trains()
            low.waits()
            expect(low.restarts().get("counted", 0) == 0 and low.phase() != "Failed", lambda: f"not charged: {low}")
            high.completes()
            low.trains(2)
            expect(len(low.holds_quota()) == 1, lambda: f"quota once: {low}")
        low.completes()


def a_failed_job_gives_quota_back(world):
    with Gang(world, "bad", backoffLimit=0) as gang:
        pods = gang.trains()
        end(pods[1], RANK_FAILED)
        end(pods[0], PEER_LOST)
        eventually(lambda: gang.phase() == "Failed", lambda: f"Failed: {gang}")
        gang.gives_back()
        expect(gang.pods(), "a failed pod is kept for its log")


def a_deleted_job_leaves_the_queue(world):
    with Gang(world, "front") as front:
        front.trains()
        with Gang(world, "behind") as behind:
            behind.waits()
        with Gang(world, "after") as after:
            after.waits()
            kubectl("-n", TEAM, "delete", "dsj", "front", "--wait=false")
            after.trains()
            after.completes()


CASES = (a_gang_waits_and_starts_when_another_ends, a_lost_worker_joins_its_group_again, a_gang_that_lost_all_gets_a_new_group,
         a_node_is_lost, suspending_gives_quota_back, a_preempted_gang_goes_back_to_the_queue, a_failed_job_gives_quota_back,
         a_deleted_job_leaves_the_queue)


def missing():
    """Why Kueue cannot run here; empty: it can."""
    try:
        kueue.check_machine()
        programs.need(programs.GROUPS["queues"])
    except ClusterError as problem:
        return str(problem)
    return ""


def main():
    repository, binaries, chosen = sys.argv[1], sys.argv[2], sys.argv[4:]
    report = Report("Kueue", sys.argv[3])
    cases = [case for case in CASES if not chosen or case.__name__ in chosen]
    if "DSJ_CLUSTER" not in os.environ:
        reason = missing()
        if reason:
            for case in cases:
                report.skipped(case.__name__, reason)
            return report.write()
        return subprocess.run([os.path.join(HERE, "cluster.py"), "run", "--kueue", sys.executable, os.path.abspath(__file__), *sys.argv[1:]],
                              env=dict(os.environ, CONTROLLER_FLAGS=CONTROLLERS), check=False).returncode
    world = World(repository, binaries)
    try:
        world.begin()
        for case in cases:
            report.run(case.__name__, lambda case=case: case(world))
    finally:
        world.finish()
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
