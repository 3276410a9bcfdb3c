#!/usr/bin/env python3
"""One job under random faults on three real nodes: how much of the time trains, and what each kind of fault costs.

Usage: storm_check.py REPOSITORY BUILD GTEST_REPORT, as jobs_check.py. DSJ_STORM_SECONDS (900): how long; DSJ_SEED (1): the
draws. Every 60 to 120 s a rank is killed, a rank freezes, a node loses its power or a node is drained. Nothing of the
never-list happens, and every loss is that of an undisturbed run on this machine, bit for bit. The share of the time is
printed beside its goal; it is no assertion, because it depends on the machine."""
import copy
import os
import random
import signal
import sys
import threading
import time

import harness
from cases import expect
from faults_platform import LOST_NODE, OPERATOR_NODE, installed, nodes_ready, uninstalled
from kube import eventually, kubectl, run
from references import losses_of
from storm_time import effective, lost, restores
from world import Job

SECONDS = float(os.environ.get("DSJ_STORM_SECONDS", "900"))
SEED = int(os.environ.get("DSJ_SEED", "1"))
BETWEEN = (60.0, 120.0)  # seconds from one fault to the next
AWAY_SECONDS = 20  # of a node without power, and of a drained one
GOAL = 0.85
SAMPLE_SECONDS = 0.25


class Samples:
    """(seconds since 1970, last step) while the block runs."""

    def __init__(self, job):
        self._job, self._over, self._found = job, threading.Event(), []
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self):
        while not self._over.is_set():
            self._found.append((time.time(), self._job.step()))
            self._over.wait(SAMPLE_SECONDS)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def found(self):
        return list(self._found)


class Faults:
    """Each breaks one thing. mended() waits until the nodes that were broken are back."""

    def __init__(self, world, job, draws):
        self._world, self._job, self._draws, self._mending = world, job, draws, None
        self._kinds = []

    def draw(self):
        """(name, what to call): every kind once before any comes again."""
        if not self._kinds:
            self._kinds = [self.a_rank_is_killed, self.a_rank_freezes, self.a_node_loses_its_power, self.a_node_is_drained]
            self._draws.shuffle(self._kinds)
        kind = self._kinds.pop()
        return kind.__name__, kind

    def a_rank_is_killed(self):
        self._job.kill(self._worker(), "dsj-train")

    def a_rank_freezes(self):
        self._job.kill(self._worker(), "dsj-train", signal.SIGSTOP)

    def a_node_loses_its_power(self):
        node = self._node()
        run(self._world.cluster, "crash", node[1:])
        self._later(lambda: run(self._world.cluster, "up", "--nodes", "3", timeout=300))

    def a_node_is_drained(self):
        node = self._node()
        kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s",
                f"--pod-selector=training.dsj.dev/job-name={self._job.name}")
        self._later(lambda: kubectl("uncordon", node))

    def _worker(self):
        return self._draws.choice(sorted(self._job.pods()))

    def _node(self):
        """A worker's, but not the operator's: a cluster without its only operator is another case."""
        nodes = {pod["spec"]["nodeName"] for pod in self._job.pods().values()} - {OPERATOR_NODE}
        return self._draws.choice(sorted(nodes))

    def _later(self, mend):
        self._mending = threading.Timer(AWAY_SECONDS, mend)
        self._mending.start()

    def mended(self):
        if self._mending:
            self._mending.join()
        eventually(nodes_ready, "all nodes")


def long_job(world):
    """Some steps a second, without an end, at a rate that does not depend on how many there will be. Two workers on two nodes:
    one of them is always on a node that may be broken."""
    manifest = world.manifest("storm", steps=1000000, cpu="300m", backoffLimit=6, liveness={"stepTimeoutSeconds": 10}, **LOST_NODE)
    world.apart(manifest)
    del manifest["spec"]["deepspeed"]["config"]["scheduler"], manifest["spec"]["training"]["warmupRatio"]
    manifest["spec"]["training"].update(lrSchedulerType="constant", saveTotalLimit=5)
    return manifest


def of_steps(manifest, steps):
    """The same job with so many steps, to be run on this machine."""
    shorter = copy.deepcopy(manifest)
    shorter["spec"]["training"].update(maxSteps=steps, saveStrategy="no")
    return shorter


def a_storm(world):
    eventually(nodes_ready, "all nodes")
    draws, costs = random.Random(SEED), []
    with Job(world, long_job(world)) as job:
        job.until_saved(20)
        with Samples(job) as samples:
            begin, faults = time.monotonic(), Faults(world, job, draws)
            due = begin + draws.uniform(*BETWEEN)
            while due < begin + SECONDS:
                faults.mended()
                time.sleep(max(0.0, due - time.monotonic()))
                name, fault = faults.draw()
                named, stepping = job.recovered(fault)
                costs.append(name)
                print(f"result: storm: {time.monotonic() - begin:4.0f} s: {name} named after {named:.1f} s, stepping after "
                      f"{stepping:.1f} s", flush=True)
                due = max(due + draws.uniform(*BETWEEN), time.monotonic())
            time.sleep(max(0.0, begin + SECONDS - time.monotonic()))
            taken = time.monotonic() - begin
        faults.mended()
        job.suspend()
        job.until("Suspended")
        found = samples.found()
        again = lost(found, restores(job.history.changes(), job.name))
        share, restarts = effective(found), job.status("restarts")
        expect(restarts["total"] >= len(costs), f"{len(costs)} faults, {restarts}")
        losses = losses_of(job.out)
        expected = world.reference(of_steps(job.manifest, max(losses)))
        wrong = [step for step in expected if losses.get(step) != expected[step]]
        expect(not wrong and len(losses) == len(expected), lambda: f"{len(wrong)} losses differ, from step {wrong[:1]} on")
        print(f"result: storm: {taken:.0f} s, {len(costs)} faults, {len(losses)} steps, {again} of them done twice; new steps in "
              f"{100 * share:.1f} % of the time (goal {100 * GOAL:.0f}); {restarts['total']} restarts, {restarts['counted']} counted; "
                  f"load average {os.getloadavg()[1]:.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(harness.main("ClusterStorm", __file__, [installed, a_storm, uninstalled], nodes=3))
