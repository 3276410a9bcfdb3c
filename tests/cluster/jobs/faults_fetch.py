"""spec.initializers on real nodes: an image that fetches over HTTP from this machine, and a server that fails once."""
import os

from harness import NEVER, Fault
from cases import expect
from faults_platform import nodes_ready
from file_server import FileServer
from kube import condition_of, eventually, run
from settings import NODE_NET
from static_image import static_image
from world import NAMESPACE, Job

ROWS = "/data/train.json"


def fetched(world, name, server, steps):
    """A job of which model and rows come from the server."""
    manifest = world.manifest(name, steps=steps, save=1000)
    manifest["spec"]["training"].update(modelNameOrPath="/data/fetched/model", dataPath="/data/fetched/train.json")
    files = sorted(os.listdir(os.path.join(world.room, "model")))
    manifest["spec"]["initializers"] = {
        "model": {"storageUri": server.url + "/model", "image": "localhost/fetch:1", "args": files},
        "dataset": {"storageUri": server.url + ROWS, "image": "localhost/fetch:1"}}
    return manifest, ["/model/" + file for file in files]


def fetching(job, what):
    """Condition DataReady, once worker 0 fetches that."""
    def found():
        told = condition_of(job.get(), "DataReady")
        return told if told.get("status") == "False" and f" fetches {what} since " in told["message"] else None
    told = eventually(found, lambda: f"fetches {what}: {job.status()}")
    expect(told["reason"] == "Fetching" and told["message"].startswith("worker 0 "), told)
    return told["message"]


def first_life(world, job, server, model):
    """Both are fetched, as the status tells. The server is busy once: worker 0's pod alone is made again, charged."""
    expect(fetching(job, "model").endswith(", 1 of 2"), job.status())
    expect(job.status("phase") == "Starting" and job.status("reason") == "Initializing", job.status())
    described = run(os.path.join(world.bin, "dsj"), "describe", job.name, "-n", NAMESPACE).stdout
    expect("worker 0 fetches model since " in described and server.url + "/model" in described, described)
    server.release(model[0])
    failed = eventually(lambda: job.status().get("lastFailure"), lambda: f"a failure: {job.status()}")
    named = job.named(server.refused)
    expect((failed["reason"], failed["worker"], failed["exitCode"]) == ("InitializerFailed", 0, 1), failed)
    expect("503 Busy" in failed["lastWords"], failed)
    fetching(job, "model")
    other = job.pods()[1]
    expect(not other["spec"].get("initContainers"), "worker 1 fetches nothing")
    expect(other["status"]["phase"] == "Running", "worker 1 waits")
    server.release(model[1])
    expect(fetching(job, "dataset").endswith(", 2 of 2"), job.status())
    server.release(ROWS)
    job.complete()
    ready = condition_of(job.get(), "DataReady")
    expect(ready["status"] == "True" and ready["reason"] == "Fetched", ready)
    restarts = job.status("restarts")
    expect(restarts["total"] == 1 and job.status("training")["attempt"] == 1, restarts)
    expect(job.pods(live=False)[1]["metadata"]["uid"] == other["metadata"]["uid"], "worker 1 is the same pod")
    expect(server.asked == [model[0], *model, ROWS], f"each file once, and one again: {server.asked}")
    return named


def the_input_is_fetched_first(world):
    eventually(nodes_ready, "all nodes")
    static_image("fetch:1", "fetch.c", world.cluster)
    with FileServer(f"{NODE_NET}.1", world.room) as server:
        manifest, model = fetched(world, "fetched", server, 30)
        server.refuse(model[0])
        for path in (model[0], model[1], ROWS):
            server.hold(path)
        with Job(world, manifest) as job:
            named = first_life(world, job, server, model)
        asked = list(server.asked)
        with Job(world, fetched(world, "fetched-too", server, 5)[0]) as job:
            job.until("Complete")
            expect(condition_of(job.get(), "DataReady").get("status") == "True", job.status())
        expect(server.asked == asked, f"what is there is not fetched again: {server.asked[len(asked):]}")
        what = "the pod is made again and fetches; the others stay and wait"
        return Fault("what an initializer fetches from is busy", what, "yes", named, NEVER)


CASES = [the_input_is_fetched_first]
