"""What must never happen, of a recorded history: the never-list of the operator and its agents.

violations(changes, now) replays every version of the jobs and pods of a namespace and returns a sentence for each thing that
must not have been. A pod counts for a worker from its creation until it has ended or is gone. What only whole clusters
tell (children left behind, writes at rest) is in world.py. A worker ends with its container: a kubelet tells the end of the pod
some time later, and the pod may have a sidecar that runs on."""
PREFIX = "training.dsj.dev/"
# Each is worth having: never_check.py has a history that it alone finds.
RULES = ("attempt_falls", "saved_step_falls", "attempt_begins_behind", "empty_write", "end_taken_back", "complete_and_failed",
         "complete_before_last_step", "complete_without_checkpoint", "pod_made_when_deleted", "pod_made_when_suspended",
         "pod_made_when_complete", "pod_made_when_failed", "two_pods_of_a_worker", "pod_of_a_deleted_job",
         "pod_of_a_suspended_job", "pod_runs_after_the_end", "pod_of_a_refused_job")


def _status(job, part):
    return (job.get("status") or {}).get(part) or {}


def _true(job, kind):
    return any(c["type"] == kind and c["status"] == "True" for c in (job.get("status") or {}).get("conditions") or [])


def _label(pod, name):
    return pod["metadata"].get("labels", {}).get(PREFIX + name)


def ended(pod):
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def worker_ended(pod):
    containers = pod.get("status", {}).get("containerStatuses") or []
    return ended(pod) or any(c["name"] == "worker" and "terminated" in c.get("state", {}) for c in containers)


def final_step(job):
    return job["spec"]["training"].get("maxSteps") or _status(job, "training").get("totalSteps")


class _Job:
    def __init__(self):
        self.attempt, self.saved, self.restored, self.now = 0, -1, None, None


class _Replay:
    def __init__(self, without):
        self.found, self.jobs, self.pods, self.without = [], {}, {}, without

    def say(self, rule, what):
        assert rule in RULES, rule
        if rule not in self.without and what not in self.found:
            self.found.append(what)

    def job(self, change):
        seen = self.jobs.setdefault(change.uid, _Job())
        job, name = change.object, change.name
        before, seen.now = seen.now, job
        training, checkpoint = _status(job, "training"), _status(job, "checkpoint")
        attempt, saved = training.get("attempt", 0), (checkpoint.get("lastSaved") or {}).get("step", -1)
        if attempt < seen.attempt:
            self.say("attempt_falls", f"{name}: the attempt falls from {seen.attempt} to {attempt}")
        restored = (checkpoint.get("lastRestored") or {}).get("step")
        damaged = checkpoint.get("lastDamaged") or {}
        set_aside = damaged.get("attempt") == attempt and damaged.get("step", -1) >= seen.saved  # by this attempt
        if saved < seen.saved and not (set_aside and saved == restored):
            self.say("saved_step_falls", f"{name}: the saved step falls from {seen.saved} to {saved}")
        elif saved < seen.saved:
            seen.saved = saved
        if restored is not None and attempt > seen.attempt and restored != seen.restored and restored < seen.saved and not set_aside:
            self.say("attempt_begins_behind", f"{name}: attempt {attempt} begins at step {restored}, though step {seen.saved} was saved")
        if change.what == "MODIFIED" and before is not None and before["spec"] == job["spec"] and before.get("status") == job.get("status") \
                and before["metadata"].get("deletionTimestamp") == job["metadata"].get("deletionTimestamp") and not change.cut:
            self.say("empty_write", f"{name}: a write that changes nothing, at {change.version}")
        seen.attempt, seen.saved, seen.restored = max(attempt, seen.attempt), max(saved, seen.saved), restored
        if _true(job, "Complete"):
            self.complete(job, change.uid)
        if before is not None:
            for kind in ("Complete", "Failed"):
                if _true(before, kind) and not _true(job, kind):
                    self.say("end_taken_back", f"{name}: {kind} is taken back")
        if _true(job, "Complete") and _true(job, "Failed"):
            self.say("complete_and_failed", f"{name}: complete and failed")
        if change.what == "DELETED":
            seen.now = None

    def complete(self, job, uid):
        name, last = job["metadata"]["name"], final_step(job)
        saved = (_status(job, "checkpoint").get("lastSaved") or {}).get("step", -1)
        if _status(job, "training").get("step") != last:
            self.say("complete_before_last_step", f"{name}: Complete at step {_status(job, 'training').get('step')} of {last}")
        if job["spec"]["training"].get("saveStrategy") != "no" and saved != last:
            self.say("complete_without_checkpoint", f"{name}: Complete, but the newest checkpoint is of step {saved} of {last}")

    def pod(self, change):
        pod, job_name = change.object, _label(change.object, "job-name")
        if not job_name:
            return
        fresh = change.uid not in self.pods and change.what != "DELETED"
        self.pods[change.uid] = pod
        if change.what == "DELETED":
            del self.pods[change.uid]
            return
        owner = pod["metadata"].get("ownerReferences", [{}])[0].get("uid")
        job = self.jobs[owner].now if owner in self.jobs else None
        if fresh and not change.cut:
            if job is None and owner in self.jobs:
                self.say("pod_made_when_deleted", f"{change.name}: a pod made for a deleted job")
            elif job is not None:
                # The edit may lie between what the operator saw and the create: its status says what it knew.
                for kind in ("Suspended", "Complete", "Failed"):
                    if _true(job, kind) and job["metadata"]["generation"] == _status_generation(job):
                        if kind != "Suspended" or job["spec"].get("suspend"):
                            self.say(f"pod_made_when_{kind.lower()}", f"{change.name}: a pod made for a job that is {kind}")
        if worker_ended(pod):
            return
        worker = _label(pod, "replica-index")
        same = [other["metadata"]["name"] for other in self.pods.values()
                if _label(other, "job-name") == job_name and _label(other, "replica-index") == worker and not worker_ended(other)]
        if len(same) > 1 and not change.cut:
            self.say("two_pods_of_a_worker", f"two pods of worker {worker}: {' and '.join(sorted(same))}")


def _status_generation(job):
    return (job.get("status") or {}).get("observedGeneration")


def violations(changes, without=()):
    """`without`: rules that do not count, to see what each of them is worth."""
    replay = _Replay(without)
    for change in sorted(changes, key=lambda entry: entry.version):
        replay.job(change) if change.kind == "job" else replay.pod(change)
    _leftovers(replay)
    return replay.found


def _leftovers(replay):
    """At the end of the history: pods that nobody should have any more."""
    for pod in replay.pods.values():
        owner = pod["metadata"].get("ownerReferences", [{}])[0].get("uid")
        job = replay.jobs[owner].now if owner in replay.jobs else None
        name = pod["metadata"]["name"]
        if owner in replay.jobs and job is None:
            replay.say("pod_of_a_deleted_job", f"{name}: left behind by a deleted job")
        elif job is not None and _true(job, "Suspended"):
            replay.say("pod_of_a_suspended_job", f"{name}: a pod of a suspended job")
        elif job is not None and (_true(job, "Complete") or _true(job, "Failed")) and not ended(pod):
            replay.say("pod_runs_after_the_end", f"{name}: runs though its job is over")
        elif job is not None and (job.get("status") or {}).get("phase") == "Refused":
            replay.say("pod_of_a_refused_job", f"{name}: a pod of a refused job")
