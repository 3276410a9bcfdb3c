"""Other containers beside the worker (faults_check.py)."""
import harness
from cases import expect
from kube import eventually
from static_image import static_image
from world import Job


def sidecars_that_never_end(world):
    """A plain second container and a native sidecar: the workers' own ends decide, and no pod runs on."""
    static_image("sidecar:1", "sidecar.c", world.cluster)
    manifest = world.manifest("sidecars", steps=20, save=10)
    beside = {"image": "localhost/sidecar:1", "imagePullPolicy": "Never",
              "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
    pod = manifest["spec"]["workers"]["template"]["spec"]
    pod["containers"].append({"name": "proxy", **beside})
    pod["initContainers"] = [{"name": "mesh", "restartPolicy": "Always", **beside}]
    with Job(world, manifest) as job:
        job.until_step(1)
        uids = job.uids()
        for worker in job.pods().values():
            beside_it = worker["status"]["containerStatuses"] + worker["status"]["initContainerStatuses"]
            running = {c["name"] for c in beside_it if "running" in c["state"]}
            expect({"proxy", "mesh"} <= running, f"both run beside the worker: {worker['status']}")
        job.complete()
        expect(job.status("restarts")["total"] == 0, job.status("restarts"))
        eventually(lambda: not job.pods(), lambda: f"a pod runs on: {job.pods()}")
        for uid in uids.values():
            expect((0, "Completed") in harness.terminations(job, uid), harness.terminations(job, uid))


CASES = [sidecars_that_never_end]
