#!/usr/bin/env python3
"""Our operator beside a real Volcano (gangs.py): gangs that are placed as a whole or wait, go on, are suspended and preempted.

Queue "research" may use two CPUs, as much as a gang of two. In the default queue the six CPUs of three nodes are the limit.

Usage: volcano_check.py REPOSITORY BIN GTEST_REPORT [CASE...]. Makes its own cluster, or takes that of cluster.py env. Where Volcano
cannot be had everything is skipped, loudly. Exit 1 on a failure.
"""
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../support"), os.path.join(HERE, "../run")]
from cases import expect  # noqa: E402
from gangs import PEER_LOST, QUIET, RANK_FAILED, TEAM, QueuedGang, World, check, described, end  # noqa: E402
from kube import eventually, get, kubectl  # noqa: E402
import programs  # noqa: E402

GROUPS = "podgroups.scheduling.volcano.sh"


def open_queue(name):
    kubectl("create", "-f", "-", thing={"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name},
                                        "spec": {"weight": 1, "reclaimable": False, "capability": {"cpu": "2"}}})
    eventually(lambda: (get("queues.scheduling.volcano.sh", name) or {}).get("status", {}).get("state") == "Open", "an open queue")


class Volcanos(World):
    scheduler = "volcano"

    def queues(self):
        open_queue("research")
        kubectl("create", "priorityclass", "urgent", "--value=1000")


class Gang(QueuedGang):
    waiting = GROUPS

    def __init__(self, world, name, queue="", priority="", least=None, **rest):
        policy = {"scheduler": "volcano", **({"queue": queue} if queue else {}), **({"priorityClass": priority} if priority else {}),
                  **({"minAvailable": least} if least else {})}
        super().__init__(world, name, policy, **rest)

    def units(self):
        return [one for one in get(GROUPS, "-n", TEAM) or [] if one["metadata"]["name"].startswith(self.name + "-")]

    def unit_names(self):
        return {one["metadata"]["name"] for one in self.units()}

    def groups(self):
        return {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in self.live()}

    def waits(self):
        """No pod has a node, and it stays so."""
        def nowhere():
            return len(self.live()) == self.size and not any(self.nodes())
        eventually(nowhere, lambda: f"waits: {self}")
        time.sleep(QUIET)
        expect(nowhere(), lambda: f"does not wait any more: {self}")


def a_gang_is_placed_as_a_whole(world):
    with Gang(world, "first", size=4) as first:
        first.trains()
        with Gang(world, "second", size=4) as second:
            second.waits()  # though two nodes have room for two of it
            said = described(world, "second")
            expect("Volcano's default: the group is" in said, said)
            print("result: volcano: " + next(line for line in said.splitlines() if "Volcano's" in line))
            first.completes()
            second.trains()
            second.completes()


def a_queue_has_a_limit(world):
    with Gang(world, "one", "research") as one:
        one.trains()
        with Gang(world, "two", "research") as two:
            two.waits()
            one.completes()
            two.trains()
            two.completes()


def a_missing_queue_is_told(world):
    gang = Gang(world, "early", "new")
    gang.submit()

    def complaints():
        return [f"{one['type']} {one['reason']}: {one['message']}" for one in gang.get().get("status", {}).get("conditions", [])
                if '"new" not found' in one.get("message", "")]
    eventually(complaints, lambda: f"the refusal in a condition: {gang}")
    print(f"result: volcano: {complaints()[0]}")
    open_queue("new")
    with gang:
        gang.trains()
        gang.completes()


def fewer_are_enough(world):
    with Gang(world, "few", "research", size=3, least=2) as gang:
        eventually(lambda: sum(map(bool, gang.nodes())) == 2, lambda: f"two of three have a node: {gang}")
        time.sleep(QUIET)
        expect(sum(map(bool, gang.nodes())) == 2, lambda: f"the third waits for quota: {gang}")


def a_lost_worker_joins_its_group_again(world):
    with Gang(world, "again", "research") as gang:
        pods = gang.trains()
        end(pods[1], RANK_FAILED)
        gang.anew(pods)
        gang.trains(2)
        expect(gang.groups() == {"again-volcano-1"} == gang.unit_names(), lambda: f"the same group: {gang}")
        gang.completes()


def a_gang_that_lost_all_gets_a_new_group(world):
    with Gang(world, "all", "research") as gang:
        pods = gang.trains()
        with world.without_operator():  # it finds none alive
            end(pods[1], RANK_FAILED)
            end(pods[0], PEER_LOST)
        gang.anew(pods, 2)
        gang.trains(2)
        expect("all-volcano-1" not in gang.groups() and gang.unit_names() == gang.groups(), lambda: f"a new group alone: {gang}")
        expect(gang.restarts().get("counted") == 1, lambda: f"charged once: {gang}")
        gang.completes()


def suspending_makes_room(world):
    with Gang(world, "here", "research") as here:
        here.trains()
        with Gang(world, "there", "research") as there:
            there.waits()
            here.suspended()
            eventually(lambda: not here.units(), lambda: f"its group goes: {here}")
            here.resumed_behind(there)


def a_preempted_gang_waits_and_goes_on(world):
    with Gang(world, "low", "research", backoffLimit=0) as low:
        low.trains()
        with Gang(world, "high", "research", "urgent") as high:
            high.trains()
            low.waits()
            expect(low.restarts().get("counted", 0) == 0 and low.phase() != "Failed", lambda: f"not charged: {low}")
            high.completes()
            low.trains(2)
        low.completes()


def a_deleted_job_leaves_no_group(world):
    with Gang(world, "front", "research") as front:
        front.trains()
        with Gang(world, "behind", "research") as behind:
            behind.waits()
        with Gang(world, "after", "research") as after:
            after.waits()
            kubectl("-n", TEAM, "delete", "dsj", "front", "--wait=false")
            after.trains()
            after.completes()


CASES = (a_gang_is_placed_as_a_whole, a_queue_has_a_limit, a_missing_queue_is_told, fewer_are_enough, a_lost_worker_joins_its_group_again,
         a_gang_that_lost_all_gets_a_new_group, suspending_makes_room, a_preempted_gang_waits_and_goes_on, a_deleted_job_leaves_no_group)


if __name__ == "__main__":
    sys.exit(check("Volcano", Volcanos, CASES, lambda: programs.need(programs.GROUPS["gangs"]), "--volcano"))
