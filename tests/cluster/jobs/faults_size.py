"""Nodes that are not what a job needs: one on which no rank may start."""
import os
import shutil
import time

from harness import Fault
from cases import expect
from faults_platform import OPERATOR_NODE, nodes_ready
from kube import eventually, run
from world import NAMESPACE, Job

BAD_NODE = "n3"


def a_node_is_not_fit(world):
    """One node's GPU has memory errors, as a driver's library in the pod tells: no rank starts there."""
    eventually(nodes_ready, "all nodes")
    folder = os.path.join(world.room, "driver")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(world.build, "fake_nvml/libnvidia-ml.so.1"), folder)
    manifest = world.manifest("unfit", not_on=[OPERATOR_NODE])
    manifest["spec"]["workers"]["template"]["spec"]["containers"][0]["env"] += [
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "FAKE_NVML", "value": f"gpus=1 ecc=2 on={BAD_NODE}"},
        {"name": "LD_LIBRARY_PATH", "value": "/data/driver"}]
    start = time.monotonic()
    with Job(world, manifest) as job:
        job.until_step(1)
        stepping = time.monotonic() - start
        named = job.named(start)
        found = job.status()["unhealthyNodes"]
        expect([node["node"] for node in found] == [BAD_NODE], found)
        expect("had 2 uncorrectable memory errors" in found[0]["message"], found)
        job.complete()
        told = job.status()["lastFailure"]
        expect(told["reason"] == "UnhealthyNode" and told["node"] == BAD_NODE and told["exitCode"] == 88, told)
        expect(job.status("restarts")["counted"] == 0, job.status("restarts"))
        expect(job.status("training")["attempt"] == 1, "no rank had started before")
        pods = job.pods(live=False).values()
        lives = sorted(pod["metadata"]["labels"]["training.dsj.dev/incarnation"] for pod in pods)
        expect(lives == ["1", "2"], f"one pod moved: {lives}")
        expect(all(pod["spec"]["nodeName"] != BAD_NODE for pod in pods), "no worker is on the bad node")
        expect(job.events("UnhealthyNode"), "an event")
        described = run(os.path.join(world.bin, "dsj"), "describe", job.name, "-n", NAMESPACE).stdout
        expect("Avoided nodes" in described and BAD_NODE in described, described)
        what = "no rank starts there; that pod moves, the job avoids the node"
        return Fault("a node's GPU has memory errors, from the start", what, "no", named, stepping)


CASES = [a_node_is_not_fit]
