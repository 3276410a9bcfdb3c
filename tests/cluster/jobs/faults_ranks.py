"""Ranks that neither end nor work as the others do: frozen ones and slow ones."""
import os
import signal
import time

from harness import GOES_ON, Fault
from cases import expect
from faults_platform import nodes_ready
from kube import condition_of, eventually, run
from world import NAMESPACE, Job


def ranks_freeze_in_turn(world):
    """Each of three ranks stops in the middle: it is named, with what the others wait in; all begin again."""
    eventually(nodes_ready, "all nodes")
    with Job(world, world.manifest("frozen", steps=90, save=10, replicas=3, cpu="500m")) as job:
        took = []
        for rank in (1, 2, 0):
            job.until_saved(max(job.saved(), default=0) + 10)  # steps enough to know how long one takes
            uids, pod = job.uids(), job.pods()[rank]
            took.append(job.recovered(lambda r=rank: job.kill(r, "dsj-train", signal.SIGSTOP)))
            eventually(lambda n=len(took): job.status("restarts")["total"] == n, lambda: f"a restart: {job.status()}")
            told = job.status()["lastFailure"]
            expect(told["reason"] == "HangDetected" and told["missingRanks"] == str(told["rank"]) == str(rank), told)
            expect((told["pod"], told["node"]) == (pod["metadata"]["name"], pod["spec"]["nodeName"]), told)
            expect(f"rank {rank} is stopped (SIGSTOP)" in told["message"] and told["step"] > 0, told)
            expect(job.uids() == uids, "the pods are the same")
            print(f"result: frozen: {told['message']}; others in {told.get('collective')}", flush=True)
        job.complete(same_losses=False)
        described = run(os.path.join(world.bin, "dsj"), "describe", job.name, "-n", NAMESPACE).stdout
        expect(described.count("HangDetected") >= 3, described)
        what = "when nothing moved for 30 s: rank, pod, node, step and collective are named; another attempt in the pods"
        return Fault("a rank freezes (three in turn, the slowest)", what, "yes", *map(max, zip(*took)))


def slow_ranks(job):
    return job.status("training").get("stragglers")


def progress(job):
    return condition_of(job.get(), "Progressing").get("reason")


def a_rank_is_slow(world):
    """A worker gets a quarter of the other's time: its rank is named, until both have the same again."""
    eventually(nodes_ready, "all nodes")
    with Job(world, world.manifest("slow", steps=5000, save=100, cpu="400m")) as job:
        job.until_step(10)
        uids = job.uids()
        start = time.monotonic()
        job.limit(1, "100m")
        told = eventually(lambda: slow_ranks(job), lambda: f"a straggler: {job.status()}")
        named = time.monotonic() - start
        expect(told.startswith("rank 1 (worker 1) needs ") and ";" not in told, told)
        eventually(lambda: progress(job) == "Stragglers", "the condition's reason")
        eventually(lambda: job.events("Stragglers"), "an event")
        job.limit(1, "400m")
        eventually(lambda: not slow_ranks(job), lambda: f"none any more: {job.status()}")
        eventually(lambda: progress(job) == "StepsAdvance", "the condition's reason")
        expect(job.status("restarts")["total"] == 0 and job.uids() == uids, job.status("restarts"))
        job.suspend()
        job.until("Suspended")
        print(f"result: straggler: {told}", flush=True)
        what = "it is named in the status and as an event until it is as fast as the others; nothing is restarted"
        return Fault("a rank is slow", what, "no restart", named, GOES_ON)


CASES = [ranks_freeze_in_turn, a_rank_is_slow]
