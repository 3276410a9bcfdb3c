"""What a job's own spec says of its life: size, budget, rules, deadlines, cleaning up, edits, deletion."""
import math
import time

from harness import GOES_ON, NEVER, Fault
from cases import expect
from kube import condition_of, eventually, kubectl, patch
from world import NAMESPACE, Job, children_of


def scaled_to_another_world_size(world):
    with Job(world, world.manifest("scale")) as job:
        job.until_saved(20)
        took = job.recovered(lambda: kubectl("-n", NAMESPACE, "scale", "dsj", "scale", "--replicas=1"))
        expect(list(job.pods()) == [0], f"one worker: {list(job.pods())}")
        losses = job.complete(same_losses=False)
        step = job.status("checkpoint")["lastRestored"]["step"]
        expected = world.reference(job.manifest)
        expect(all(losses[s] == expected[s] for s in range(1, step + 1)), f"the same losses up to step {step}")
        expect(all(math.isfinite(loss) for loss in losses.values()) and losses[120] < losses[1], f"it goes on learning: {losses[120]}")
        status = job.status()
        expect(status["worldSize"] == 1 and status["training"]["worldSize"] == 1, status["training"])
        expect(status["restarts"]["counted"] == 0, status["restarts"])
        return Fault("scaled to another world size", "all ranks save one step, the new gang continues from it", "no", *took)


def kill_rank(job):
    """Rank 1, once it runs, by the disk: the status may still be about to tell of the attempt before."""
    eventually(lambda: rank_runs(job), "rank 1")
    job.kill(1, "dsj-train")


def newer_checkpoint(job):
    saved = max(job.saved(), default=-1)
    job.until_saved(eventually(lambda: max(job.saved(), default=-1) > saved and max(job.saved()), "a newer checkpoint"))


def rank_runs(job):
    try:
        return job.process(1, "dsj-train")
    except (AssertionError, KeyError):
        return None


def the_budget_is_used_up(world):
    with Job(world, world.manifest("budget", save=1000, cpu="300m", backoffLimit=2)) as job:
        job.until_step(2)
        for _ in range(2):
            attempt = job.attempt()
            kill_rank(job)
            eventually(lambda a=attempt: job.attempt() > a, "another attempt")
        start = time.monotonic()
        kill_rank(job)
        failed = job.until("Failed")
        told = condition_of(failed, "Failed")
        expect(told["reason"] == "BackoffLimitExceeded" and "rank 1" in told["message"], told)
        expect(failed["status"]["restarts"]["counted"] == 2, failed["status"]["restarts"])
        return Fault("more failures than backoffLimit, no newer checkpoint", "Failed, BackoffLimitExceeded", "yes",
                     time.monotonic() - start, NEVER)


def a_newer_checkpoint_gives_the_budget_back(world):
    with Job(world, world.manifest("budget-back", save=5, cpu="500m", backoffLimit=1)) as job:
        job.until_saved(5)
        took = []
        for _ in range(3):
            newer_checkpoint(job)
            took.append(job.recovered(lambda: kill_rank(job)))
        job.complete()
        expect(job.status("restarts")["total"] == 3, job.status("restarts"))
        return Fault("three failures, each after a newer checkpoint, backoffLimit 1", "another attempt each time", "yes, then reset",
                     *map(max, zip(*took)))


def rules_decide(world):
    """By the exit code, by the reason of the last words; the first that matches."""
    rules = [{"name": "killed", "action": "FailJob", "onReasons": ["Killed"]}]
    with Job(world, world.manifest("rule-fails", cpu="500m", failurePolicy={"rules": rules})) as job:
        job.until_step(5)
        start = time.monotonic()
        job.kill(1, "dsj-train")
        told = condition_of(job.until("Failed"), "Failed")
        seconds = time.monotonic() - start
        expect(told["reason"] == "FailurePolicy", told)
    rules = [{"name": "agent", "action": "RestartUncounted", "onExitCodes": {"operator": "In", "values": [137]}}]
    with Job(world, world.manifest("rule-spares", cpu="500m", failurePolicy={"rules": rules})) as job:
        job.until_saved(20)
        job.recovered(lambda: job.kill(0, "dsj-agent"))
        job.complete()
        expect(job.status("restarts")["counted"] == 0 and job.status("restarts")["total"] == 1, job.status("restarts"))
    return Fault("a rule says FailJob, or RestartUncounted", "what the first matching rule says", "as the rule says", seconds, NEVER)


def deadlines_end_it(world):
    with Job(world, world.manifest("deadline", cpu="300m", runPolicy={"activeDeadlineSeconds": 8})) as job:
        start = time.monotonic()
        told = condition_of(job.until("Failed"), "Failed")
        seconds = time.monotonic() - start
        expect(told["reason"] == "DeadlineExceeded", told)
    with Job(world, nowhere(world.manifest("startup", runPolicy={"startupDeadlineSeconds": 5}))) as job:
        placed = eventually(lambda: condition_of(job.get(), "Scheduled").get("reason") == "Unschedulable" and job.get(), "Unschedulable")
        expect("node" in condition_of(placed, "Scheduled")["message"], condition_of(placed, "Scheduled"))
        told = condition_of(job.until("Failed"), "Failed")
        expect(told["reason"] == "StartupDeadlineExceeded", told)
    return Fault("activeDeadlineSeconds (8), startupDeadlineSeconds", "Failed; the pods save and are deleted", "-", seconds, NEVER)


def nowhere(manifest):
    manifest["spec"]["workers"]["template"]["spec"]["nodeSelector"] = {"no-such": "node"}
    return manifest


def cleaned_up_as_asked(world):
    """cleanPodPolicy of a finished job, and its TTL."""
    for policy, left in (("Running", 2), ("None", 2), ("All", 0)):
        with Job(world, world.manifest("clean-" + policy.lower(), steps=10, runPolicy={"cleanPodPolicy": policy})) as job:
            job.until("Complete")
            pods = lambda: [c for c in children_of(NAMESPACE, job.name) if c.startswith("pod/")]  # noqa: E731
            eventually(lambda n=left: len(pods()) == n, lambda: f"{left} pods with {policy}: {pods()}")
    with Job(world, world.manifest("ttl", steps=10, runPolicy={"ttlSecondsAfterFinished": 3})) as job:
        job.until("Complete")
        start = time.monotonic()
        eventually(lambda: not job.get(), "the end of the job itself")
        return Fault("cleanPodPolicy, ttlSecondsAfterFinished", "pods and job are deleted as asked; a job with a TTL of 3 s is gone "
                     f"after {time.monotonic() - start:.1f} s", "-", NEVER, NEVER)


NO_SUCH_CONFIG = {"config": None, "configFrom": {"configMapKeyRef": {"name": "no-such", "key": "ds_config.json"}}}


def a_bad_edit_changes_nothing(world):
    with Job(world, world.manifest("bad-edit", cpu="500m")) as job:
        job.until_step(5)
        uids = job.uids()
        start = time.monotonic()
        wrong = '{"spec": {"deepspeed": {"config": {"train_batch_size": 7}}}}'
        refused = kubectl("-n", NAMESPACE, "patch", "dsj", "bad-edit", "--type", "merge", "-p", wrong, check=False)
        expect(refused.returncode != 0 and "train_batch_size" in refused.stderr, f"the webhook refuses it: {refused.stderr}")
        patch("dsj", "bad-edit", {"spec": {"deepspeed": NO_SUCH_CONFIG}}, NAMESPACE)  # what only the operator can see
        told = eventually(lambda: condition_of(job.get(), "Accepted").get("status") == "False" and condition_of(job.get(), "Accepted"),
                          "Accepted=False")
        seconds = time.monotonic() - start
        expect(told["reason"] == "ConfigMapMissing" and "stays in force" in told["message"], told)
        job.until_step(job.step() + 5)
        job.complete()
        now = {worker: pod["metadata"]["uid"] for worker, pod in job.pods(live=False).items()}
        expect(now == uids and job.status("restarts")["total"] == 0, f"{uids}, then {now}")
        return Fault("a bad edit of a running job", "refused by the webhook, or Accepted=False; the last accepted spec stays in force", "no restart", seconds,
                     GOES_ON)


def deleted_in_every_phase(world):
    """Nothing is left of it, whatever it was doing."""
    def pending(job):
        eventually(lambda: job.status().get("phase") == "Pending" and job.pods(), "Pending")

    def starting(job):
        eventually(lambda: job.status().get("phase") in ("Starting", "Running"), "Starting")

    def running(job):
        job.until_step(3)

    def restarting(job):
        job.until_saved(20)
        job.kill(0, "dsj-agent")
        eventually(lambda: job.status().get("phase") == "Restarting", "Restarting")

    def suspending(job):
        job.until_step(3)
        job.suspend()

    def suspended(job):
        job.until_step(3)
        job.suspend()
        job.until("Suspended")

    def complete(job):
        job.until("Complete")

    def refused(job):
        eventually(lambda: job.status().get("phase") == "Refused", "Refused")

    slowest = 0.0
    for phase in (pending, starting, running, restarting, suspending, suspended, complete, refused):
        name = "delete-" + phase.__name__
        manifest = world.manifest(name, steps=10 if phase is complete else 120, cpu=None if phase is complete else "500m")
        if phase is pending:
            nowhere(manifest)
        if phase is refused:
            manifest["spec"]["deepspeed"] = {"configFrom": NO_SUCH_CONFIG["configFrom"]}
        with Job(world, manifest) as job:
            phase(job)
            start = time.monotonic()
            kubectl("-n", NAMESPACE, "delete", "dsj", name, "--wait=false")
            eventually(lambda j=job: not j.get(), "the job's end")
            job.no_children()
            slowest = max(slowest, time.monotonic() - start)
    return Fault("deleted in every phase (8)", f"no child object is left after {slowest:.1f} s at most; running ranks save first", "-",
                 NEVER, NEVER)


CASES = [scaled_to_another_world_size, the_budget_is_used_up, a_newer_checkpoint_gives_the_budget_back, rules_decide, deadlines_end_it,
         cleaned_up_as_asked, a_bad_edit_changes_nothing, deleted_in_every_phase]
