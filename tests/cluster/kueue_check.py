#!/usr/bin/env python3
"""Our operator beside a real Kueue (gangs.py): gangs that wait for quota, go on, are lost, suspended and preempted.

In most cases gangs of two share a quota for one of them. Those of topology have racks and nodes of their own, where no other pod
takes room.

Usage: kueue_check.py REPOSITORY BIN GTEST_REPORT [CASE...]. Makes its own cluster, or takes that of cluster.py env. Where Kueue
cannot run or cannot be had everything is skipped, loudly. Exit 1 on a failure.
"""
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support"), os.path.join(HERE, "../run")]
from cases import expect  # noqa: E402
from gangs import (NODES, PEER_LOST, PREEMPTED, QUIET, RANK_FAILED, TEAM, Kubelets, QueuedGang, World, check,  # noqa: E402
                   described, end, uid_of)
from kube import condition_of, eventually, get, holds, kubectl  # noqa: E402
import kueue  # noqa: E402
import programs  # noqa: E402

DEADLINE = 30
RACK = "example.com/rack"
RACKS = {"rack-node-1": "a", "rack-node-2": "b", "rack-node-3": "b"}


def create_in_kueue(kind, name, namespace=None, **rest):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    kubectl("create", "-f", "-", thing={"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, **rest})


def create_queues(cluster, local, flavor, cpus):
    quota = [{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]}]}]
    create_in_kueue("ClusterQueue", cluster, spec={
        "namespaceSelector": {}, "resourceGroups": quota, "preemption": {"withinClusterQueue": "LowerPriority"}})
    create_in_kueue("LocalQueue", local, TEAM, spec={"clusterQueue": cluster})


class Kueues(World):
    """Kueue with two queues, one with quota for one gang of two, one of racks; and the operator."""

    scheduler = "kueue"
    nodes = {**{name: {"pool": "plain"} for name in NODES}, **{name: {"pool": "racks", RACK: rack} for name, rack in RACKS.items()}}

    def queues(self):
        create_in_kueue("WorkloadPriorityClass", "urgent", value=1000)
        create_in_kueue("ResourceFlavor", "any", spec={"nodeLabels": {"pool": "plain"}})
        create_queues("gpus", "research", "any", 2)
        levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
        create_in_kueue("Topology", "hall", spec={"levels": levels})
        create_in_kueue("ResourceFlavor", "racks", spec={"nodeLabels": {"pool": "racks"}, "topologyName": "hall"})
        create_queues("racks", "near", "racks", 2 * len(RACKS))


class Gang(QueuedGang):
    """Two workers are as much as queue "research" has."""

    waiting = "workloads"

    def __init__(self, world, name, priority="", near=None, **rest):
        """near: the mode of a topology by racks, in the queue of the racks."""
        policy = {"scheduler": "kueue", "queue": "near" if near else "research", **({"priorityClass": priority} if priority else {})}
        super().__init__(world, name, policy, topology={"key": RACK, "mode": near} if near else None, **rest)

    def units(self):
        return [one for one in get("workloads.kueue.x-k8s.io", "-n", TEAM) or [] if one["metadata"]["name"].startswith(self.name + "-")]

    def workload(self, number):
        return get("workloads.kueue.x-k8s.io", f"{self.name}-kueue-{number}", "-n", TEAM) or {}

    def groups(self):
        return {pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] for pod in self.live()}

    def holds_quota(self):
        return [one["metadata"]["name"] for one in self.units()
                if holds(one, "QuotaReserved") and not holds(one, "Finished")]

    def waits(self):
        """All pods behind Kueue's gate, and it stays so."""
        def gated():
            pods = self.live()
            return len(pods) == self.size and all(pod["spec"].get("schedulingGates") for pod in pods) and not self.holds_quota() and self.units()
        eventually(gated, lambda: f"waits: {self}")
        time.sleep(QUIET)
        expect(gated(), lambda: f"does not wait any more: {self}")

    def gives_back(self):
        eventually(lambda: not self.holds_quota(), lambda: f"quota is given back: {self}")


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
            # While Kueue tries the one in front, that one is not in the list.
            eventually(lambda: "LocalQueue research: 1 job before it, 1 job in the ClusterQueue" in described(world, "third"),
                       lambda: described(world, "third"))
            said = described(world, "third")
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
        gang.anew(pods)
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
            there.suspend(True)  # in the queue
            eventually(lambda: there.phase() == "Suspended" and not there.pods(), lambda: f"leaves the queue: {there}")
            eventually(lambda: not there.units(), lambda: f"no Workload waits without pods: {there}")
            there.suspend(False)
            there.waits()
            here.suspended()
            here.gives_back()
            here.resumed_behind(there)


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


def a_gang_that_is_not_ready_in_time_goes_back_to_the_queue(world):
    with Gang(world, "unready", backoffLimit=0) as gang:
        world.kubelets.away.update(NODES)
        try:
            eventually(lambda: len(gang.live()) == 2 and all(gang.nodes()), lambda: f"both have a node: {gang}")
            first = {uid_of(pod) for pod in gang.pods()}
            eventually(lambda: holds(gang.workload(1), "Evicted"), lambda: f"Kueue waits for pods that are ready: {gang}",
                       kueue.READY_SECONDS + 60)
            expect(condition_of(gang.workload(1), "Evicted")["reason"] == "PodsReadyTimeout", lambda: f"for that reason: {gang}")
        finally:
            world.kubelets.away.clear()
        eventually(lambda: not first & {uid_of(pod) for pod in gang.live()}, lambda: f"all pods are made anew: {gang}")
        gang.trains()
        expect(gang.restarts().get("counted", 0) == 0, lambda: f"not charged: {gang}")
        expect(len(gang.holds_quota()) == 1, lambda: f"quota once: {gang}")
        gang.completes()
        gang.gives_back()


def pods_that_came_too_late_leave_a_finished_group(world):
    """The operator asked for two successors, had no answer, and told Kueue that the group is over; then they came to be."""
    with Gang(world, "late") as gang:
        pods = gang.trains()
        with world.without_operator():
            for pod in pods:
                end(pod, PREEMPTED)
                kubectl("-n", TEAM, "annotate", "pod", pod["metadata"]["name"], "kueue.x-k8s.io/retriable-in-group=false")
            eventually(lambda: holds(gang.workload(1), "Finished"), lambda: f"Kueue finishes the group: {gang}")
            for pod in pods:
                kubectl("create", "-f", "-", thing=successor_of(pod), config=world.access)
            late = {uid_of(pod) for pod in gang.live()}
            expect(len(late) == 2 and gang.groups() == {"late-kueue-1"}, lambda: f"two more in the group: {gang}")
            gang.waits()
        gang.trains(2)
        expect(not late & {uid_of(pod) for pod in gang.pods()}, lambda: f"they go: {gang}")
        expect("late-kueue-1" not in gang.groups() and len(gang.holds_quota()) == 1, lambda: f"a new group: {gang}")
        expect(gang.restarts().get("counted", 0) == 0, lambda: f"not charged: {gang}")
        gang.completes()
        gang.gives_back()


def successor_of(pod):
    """As the operator asks for it: without what server, scheduler and Kueue have written."""
    metadata, spec = pod["metadata"], dict(pod["spec"])
    for written in ("nodeName", "schedulingGates", "nodeSelector", "tolerations"):
        spec.pop(written, None)
    name, _, number = metadata["name"].rpartition("-")
    labels = {key: value for key, value in metadata["labels"].items() if key != "kueue.x-k8s.io/managed"}
    labels["training.dsj.dev/incarnation"] = str(int(number) + 1)
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
        "name": f"{name}-{int(number) + 1}", "namespace": TEAM, "labels": labels, "ownerReferences": metadata["ownerReferences"],
        "annotations": metadata["annotations"], "finalizers": [one for one in metadata["finalizers"] if "kueue" not in one]}}


def neighbours_share_a_node(nodes):
    """Workers of one node have neighbouring numbers."""
    return all(nodes[i] == nodes[i - 1] or nodes[i] not in nodes[:i] for i in range(1, len(nodes)))


def a_gang_is_placed_in_one_rack(world):
    with Gang(world, "packed", size=4, near="Required") as gang:
        pods = gang.trains()
        nodes = gang.nodes()
        print(f"result: kueue: four workers with a required rack: {', '.join(nodes)}")
        expect({RACKS[node] for node in nodes} == {"b"}, lambda: f"the one rack that holds four: {gang}")
        expect(neighbours_share_a_node(nodes), lambda: f"in the order of the ranks: {gang}")
        end(pods[1], RANK_FAILED)
        gang.anew(pods)
        gang.trains(2)
        expect(gang.nodes() == nodes, lambda: f"on the node of the one it replaces, {nodes}: {gang}")
        gang.completes()
        gang.gives_back()


def a_gang_that_no_rack_holds_waits(world):
    with Gang(world, "wide", size=5, near="Required") as gang:
        gang.waits()
        said = described(world, "wide")
        expect("topology" in said, said)
        print("result: kueue: " + next(line for line in said.splitlines() if "topology" in line).strip())
    with Gang(world, "spread", size=5, near="Preferred") as gang:
        gang.trains()
        nodes = gang.nodes()
        print(f"result: kueue: five workers with a preferred rack: {', '.join(nodes)}")
        expect(set(nodes) == set(RACKS) and neighbours_share_a_node(nodes), lambda: f"in the order of the ranks: {gang}")
        gang.completes()
        gang.gives_back()


CASES = (a_gang_is_placed_in_one_rack, a_gang_that_no_rack_holds_waits, a_gang_waits_and_starts_when_another_ends,
         a_lost_worker_joins_its_group_again, a_gang_that_lost_all_gets_a_new_group, a_node_is_lost, suspending_gives_quota_back,
         a_gang_that_is_not_ready_in_time_goes_back_to_the_queue, pods_that_came_too_late_leave_a_finished_group,
         a_preempted_gang_goes_back_to_the_queue, a_failed_job_gives_quota_back, a_deleted_job_leaves_the_queue)


def need():
    kueue.check_machine()
    programs.need(programs.GROUPS["queues"])


if __name__ == "__main__":
    sys.exit(check("Kueue", Kueues, CASES, need, "--kueue"))
