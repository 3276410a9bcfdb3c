"""Nodes that are not what a job needs: one on which no rank may start, and fewer of them for an elastic job."""
import os
import shutil
import time

from harness import Fault
from cases import expect
from faults_platform import LOST_NODE, OPERATOR_NODE, nodes_ready
from kube import eventually, run
from world import NAMESPACE, Job

BAD_NODE = "n3"
TOLERANCE = 1e-6  # between losses of gangs of different sizes, which add in another order


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


def elastic(world):
    """A job of one or two workers, each on a node of its own, and rows that are the same for both sizes."""
    policy = {"minReplicas": 1, "maxReplicas": 2, "shrinkAfterSeconds": 15, "growAfterSeconds": 300}
    manifest = world.manifest("elastic", steps=200, cpu="500m", not_on=[OPERATOR_NODE], elastic=policy, **LOST_NODE)
    training, config = manifest["spec"]["training"], manifest["spec"]["deepspeed"]["config"]
    del training["gradientAccumulationSteps"]
    training.update(bf16=False, learningRate=1.0e-5)  # what rounding makes of 200 steps stays small
    config["train_batch_size"] = 64
    world.apart(manifest)
    return manifest


def an_elastic_job_loses_a_node(world):
    """2, 1, 2 workers: each step trains on the same rows, so the losses are those of 2."""
    eventually(nodes_ready, "all nodes")
    manifest = elastic(world)
    expected = world.reference(manifest)
    with Job(world, manifest) as job:
        job.until_saved(20)
        node = job.pods()[1]["spec"]["nodeName"]
        took = job.recovered(lambda: run(world.cluster, "crash", node[1:]))
        job.limit(0, "20m")  # so that steps are left for the time after
        eventually(lambda: job.status("training").get("worldSize") == 1, lambda: f"one worker: {job.status()}")
        expect(job.status("elastic")["replicas"] == 1, job.status("elastic"))
        run(world.cluster, "up", "--nodes", "3", timeout=300)
        eventually(lambda: job.pods().get(1, {}).get("status", {}).get("phase") == "Running",
                   lambda: f"a spare: {job.status()}")
        job.limit(0, "500m")
        eventually(lambda: job.status("training").get("worldSize") == 2, lambda: f"two workers: {job.status()}")
        losses = job.complete(same_losses=False)
        expect(sorted(losses) == sorted(expected), f"{len(losses)} steps, expected {len(expected)}")
        furthest = max(abs(losses[step] - expected[step]) / max(1.0, abs(expected[step])) for step in expected)
        expect(furthest <= TOLERANCE, f"a loss is {furthest:.2g} from the fixed run's")
        expect(job.status("elastic")["resizes"] == 2 and len(job.events("Resized")) >= 2, job.status("elastic"))
        expect(job.status("restarts")["counted"] == 0, job.status("restarts"))
        print(f"result: elastic: 2, 1, 2 workers; {len(losses)} losses within {furthest:.1e} of those of 2", flush=True)
        what = "it goes on smaller after shrinkAfterSeconds (15), and grows at the next checkpoint"
        return Fault("an elastic job loses a node, which comes back", what, "no", *took)


CASES = [a_node_is_not_fit, an_elastic_job_loses_a_node]
