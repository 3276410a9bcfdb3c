#!/usr/bin/env python3
"""launcher: Command on two real nodes: a program of the user's own, static, in an image from scratch, entered by the agent.

Usage: command_check.py REPOSITORY BUILD GTEST_REPORT [CASE...]. Makes its own cluster (or takes that of cluster.py env). Without
root or without what a node needs everything is skipped, loudly. Exit 1 on a failure. Needs no dsj-train.
"""
import os
import sys

import harness
from cases import expect
from kube import condition_of, eventually, get, holds, kubectl, patch
from static_image import static_image
from world import NAMESPACE, children_of, job_label, operator_ready


def images(world):
    """The operator, and in the place of the worker image one with the agent alone."""
    world.images(worker="agent")
    static_image("own:1", "own_program.c", world.cluster)


def installed(world):
    images(world)
    world.install()
    os.makedirs(world.room, exist_ok=True)
    world.mount()
    operator_ready()


class Own:
    """One job of the program; deleted in the end, with all that it had."""

    def __init__(self, world, name, mode, **spec):
        self.name, self.folder = name, os.path.join(world.room, name)
        os.makedirs(self.folder)
        world.own()
        worker = {"name": "worker", "image": "localhost/own:1", "imagePullPolicy": "Never", "command": ["/program"],
                  "args": [mode, "$(PLACE)"], "env": [{"name": "PLACE", "value": f"/data/{name}"}, {"name": "OWN", "value": "mine"}],
                  "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                  "labelSelector": {"matchLabels": {"training.dsj.dev/job-name": name}}}
        template = {"spec": {"containers": [worker], "topologySpreadConstraints": [spread],
                             "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]}}
        self.manifest = {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob",
                         "metadata": {"name": name, "namespace": NAMESPACE},
                         "spec": {"launcher": "Command", "training": {"outputDir": f"/data/{name}/out"},
                                  "workers": {"replicas": 2, "slotsPerWorker": 2, "template": template}, **spec}}

    def __enter__(self):
        kubectl("create", "-f", "-", thing=self.manifest)
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print(kubectl("-n", NAMESPACE, "get", "dsj,pods", "-o", "yaml", check=False).stdout[-6000:])
        kubectl("-n", NAMESPACE, "delete", "dsj", self.name, "--wait=false")
        if kind is None:
            eventually(lambda: not children_of(NAMESPACE, self.name), "no child is left")

    def get(self):
        return get("dsj", self.name, "-n", NAMESPACE) or {}

    def policies(self):
        return get("networkpolicies", "-n", NAMESPACE, "-l", job_label(self.name))

    def uids(self):
        return sorted(pod["metadata"]["uid"] for pod in get("pods", "-n", NAMESPACE, "-l", job_label(self.name)) or [])

    def until(self, kind):
        eventually(lambda: holds(self.get(), kind), lambda: f"{kind}: {self.get().get('status')}")
        return self.get()

    def log(self, worker, life=1):
        return kubectl("-n", NAMESPACE, "logs", f"{self.name}-worker-{worker}-{life}", check=False).stdout  # or not there yet


def a_users_program_to_complete(world):
    config = {"train_micro_batch_size_per_gpu": 1}
    with Own(world, "own", "sum", deepspeed={"config": config}) as job:
        done = job.until("Complete")
        expect(condition_of(done, "Complete")["message"] == "every rank ended with exit code 0", done["status"])
        expect("the sum is 6" in job.log(0), f"four ranks met: {job.log(0)}")
        for worker in (0, 1):
            for local in (0, 1):
                line = f"[rank {2 * worker + local}] rank {2 * worker + local} of 4, mine, libraries unset, ds_config readable"
                expect(line in job.log(worker), f"{line}: {job.log(worker)}")
        pods = get("pods", "-n", NAMESPACE, "-l", job_label("own"))
        expect({pod["spec"]["nodeName"] for pod in pods} == {"n1", "n2"}, "on both nodes")
        expect(len(job.policies()) == 1, job.policies())


def a_code_of_its_own_is_tried_again(world):
    """3 would end a job of ours for good."""
    with Own(world, "code", "fail") as job:
        eventually(lambda: len(job.uids()) == 2, "two pods")
        uids = job.uids()
        done = job.until("Complete")["status"]
        expect(done["training"]["attempt"] == 2 and done["restarts"]["total"] == 1, done)
        expect(done["lastFailure"]["exitCode"] == 3 and done["lastFailure"]["rank"] == 1, done["lastFailure"])
        expect("no such flag" in done["lastFailure"]["lastWords"], done["lastFailure"])
        expect(job.uids() == uids, "in the same pods")


def suspended_it_is_asked_and_not_complete(world):
    with Own(world, "pause", "wait") as job:
        eventually(lambda: "the sum is 6" in job.log(0), "the ranks have met")
        patch("dsj", "pause", {"spec": {"suspend": True}}, NAMESPACE)
        suspended = job.until("Suspended")
        expect(condition_of(suspended, "Suspended")["reason"] == "SuspendedWithoutCheckpoint", suspended["status"])
        expect(not holds(suspended, "Complete") and not job.uids(), "stopped, not done")
        for rank in range(4):
            with open(os.path.join(job.folder, f"out/logs/rank-{rank}.log"), encoding="utf-8") as file:
                expect("asked to leave" in file.read(), f"rank {rank} had its time")
        patch("dsj", "pause", {"spec": {"suspend": False}}, NAMESPACE)
        eventually(lambda: "the sum is 6" in job.log(0, 2), "it goes on")
        with open(os.path.join(job.folder, "end"), "w", encoding="ascii"):
            pass
        done = job.until("Complete")["status"]
        expect(done["training"]["attempt"] == 2 and done["restarts"]["total"] == 0, done)


CASES = [installed, a_users_program_to_complete, a_code_of_its_own_is_tried_again, suspended_it_is_asked_and_not_complete]

if __name__ == "__main__":
    sys.exit(harness.main("ClusterCommand", __file__, CASES, nodes=2))
