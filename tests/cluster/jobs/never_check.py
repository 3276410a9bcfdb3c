#!/usr/bin/env python3
"""The checker of the never-list is itself checked: a good history has no violation, each planted one is found, and each rule
has one that no other rule finds. So is named_after() of the history.

Usage: never_check.py GTEST_REPORT. Exit 1 on a failure."""
import copy
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from cases import Report, expect  # noqa: E402
from history import Change, named_after  # noqa: E402
from never import RULES, violations  # noqa: E402

LABEL = "training.dsj.dev/"


def job(version, spec=None, **status):
    conditions = [{"type": kind, "status": "True"} for kind in status.pop("true", [])]
    return Change("job", "MODIFIED", {
        "metadata": {"name": "j", "uid": "u", "resourceVersion": str(version), "generation": 1},
        "spec": dict({"training": {"maxSteps": 10}}, **(spec or {})),
        "status": dict(status, conditions=conditions, observedGeneration=1, at=version)})


def pod(version, worker, life, phase="Running", what="MODIFIED", state="running"):
    return Change("pod", what, {
        "metadata": {"name": f"j-worker-{worker}-{life}", "uid": f"p{worker}-{life}", "resourceVersion": str(version),
                     "ownerReferences": [{"uid": "u"}],
                     "labels": {LABEL + "job-name": "j", LABEL + "replica-index": str(worker), LABEL + "incarnation": str(life)}},
        "status": {"phase": phase, "containerStatuses": [{"name": "sidecar", "state": {"terminated": {}}},
                                                          {"name": "worker", "state": {state: {}}}]}})


def at(attempt, step, saved, **more):
    return dict({"training": {"attempt": attempt, "step": step}, "checkpoint": {"lastSaved": {"step": saved}}}, **more)


GOOD = [job(1), pod(2, 0, 1), pod(3, 1, 1), job(4, **at(1, 4, 4)), pod(5, 1, 1, "Failed"), pod(6, 1, 2), job(7, **at(2, 10, 10)),
        pod(8, 0, 1, "Succeeded"), pod(9, 1, 2, "Succeeded"), job(10, **at(2, 10, 10, true=["Complete"])),
        pod(11, 1, 1, "Failed", "DELETED")]


# A kubelet tells the end of a pod after that of its worker, and a sidecar may keep the pod.
LATE = GOOD[:4] + [pod(5, 1, 1, state="terminated")] + GOOD[5:]


def behind_damage(saved):
    """The good history, whose second attempt sets step 4 aside and goes on from step 2; `saved`: of which the status tells."""
    return GOOD[:6] + [job(6, training={"attempt": 2, "step": 2}, checkpoint={
        "lastSaved": {"step": saved}, "lastRestored": {"step": 2}, "lastDamaged": {"step": 4, "attempt": 2}})] + GOOD[6:]


def deleted(version):
    change = job(version)
    change.what = "DELETED"
    return change


def same_again(version):
    change = copy.deepcopy(job(7, **at(2, 10, 10)))
    change.version = version
    change.object["metadata"]["resourceVersion"] = str(version)
    return change


ENDED = [pod(8, 0, 1, "Succeeded"), pod(9, 1, 2, "Succeeded")]
SUSPENDED = ({"suspend": True},)

# What is planted, by the rule that alone finds it, and a word of what must be said of it.
PLANTED = {
    "complete_before_last_step": (GOOD[:7] + ENDED + [job(10, **at(2, 9, 10, true=["Complete"]))], "Complete at step 9"),
    "complete_without_checkpoint": (GOOD[:6] + [job(7, **at(2, 10, 8))] + ENDED + [job(10, **at(2, 10, 8, true=["Complete"]))],
                                    "the newest checkpoint is of step 8"),
    "attempt_falls": (GOOD + [job(12, **at(1, 10, 10, true=["Complete"]))], "the attempt falls"),
    "saved_step_falls": (GOOD[:4] + [job(12, **at(1, 4, -1))], "the saved step falls"),
    "attempt_begins_behind": (GOOD[:4] + [job(12, training={"attempt": 2, "step": 2}, checkpoint={
        "lastSaved": {"step": 4}, "lastRestored": {"step": 2}})], "begins at step 2"),
    "two_pods_of_a_worker": (GOOD[:4] + [pod(5, 1, 2)], "two pods of worker 1"),
    "pod_made_when_suspended": ([job(1, *SUSPENDED, true=["Suspended"]), pod(2, 0, 1), pod(3, 0, 1, what="DELETED")],
                                "made for a job that is Suspended"),
    "pod_of_a_suspended_job": ([pod(1, 0, 1), job(2, *SUSPENDED, true=["Suspended"])], "a pod of a suspended job"),
    "pod_made_when_complete": (GOOD + [pod(12, 0, 2), pod(13, 0, 2, "Failed")], "made for a job that is Complete"),
    "pod_made_when_failed": ([job(1, true=["Failed"]), pod(2, 0, 1), pod(3, 0, 1, "Failed")], "made for a job that is Failed"),
    "pod_runs_after_the_end": (GOOD[:7] + ENDED[:1] + [job(9, **at(2, 10, 10, true=["Complete"]))], "runs though"),
    "pod_of_a_refused_job": ([job(1, phase="Refused"), pod(2, 0, 1)], "a pod of a refused job"),
    "pod_of_a_deleted_job": (GOOD[:3] + [deleted(4)], "left behind"),
    "pod_made_when_deleted": ([job(1), deleted(2), pod(3, 0, 1), pod(4, 0, 1, what="DELETED")], "made for a deleted job"),
    "end_taken_back": (GOOD + [job(12, **at(2, 10, 10))], "taken back"),
    "complete_and_failed": (GOOD + [job(12, **at(2, 10, 10, true=["Complete", "Failed"]))], "complete and failed"),
    "empty_write": (GOOD[:7] + [same_again(12)], "changes nothing"),
}


def check(changes, wanted):
    found = violations(changes)
    expect(any(wanted in sentence for sentence in found) if wanted else not found, f"wanted {wanted!r}, found {found}")


def check_each_rule_is_needed():
    expect(set(PLANTED) == set(RULES), f"rules without a case: {set(RULES) ^ set(PLANTED)}")
    for rule, (changes, _) in PLANTED.items():
        found = violations(changes, without={rule})
        expect(not found, f"{rule}: without it the case is found all the same: {found}")


def check_named_after():
    """Its own trouble names a fault, not what was told before; agent 0 and a condition name it as well as the operator."""
    lost, hung = {"reason": "NodeLost", "time": "1"}, {"reason": "HangDetected", "time": "2"}
    seen = [job(1), job(2, lastFailure=lost), job(3, lastFailure=lost), job(4, lastFailure=lost, training={"lastFailure": hung}),
            job(5, lastFailure=hung, training={"lastFailure": hung})]
    for second, change in enumerate(seen):
        change.seen = float(second)
    expect(named_after(seen, "j", 0.5) == 0.5, "the lost node")
    expect(named_after(seen, "j", 1.5) == 1.5, "the hang, by agent 0")
    expect(named_after(seen, "j", 4.5) is None and named_after(seen[:1], "j", 0.0) is None, "nothing new")
    expect(named_after(seen, "other", 0.0) is None, "another job's")
    resized = job(6)
    resized.object["status"]["conditions"] = [{"type": "Restarting", "status": "True", "reason": "Resized"}]
    expect(named_after([job(1), resized], "j", 0.0) == 0.0, "a condition")


def main():
    report = Report("NeverList", sys.argv[1])
    for name, (changes, wanted) in {"a_good_history": (GOOD, None), "one_behind_damage": (behind_damage(2), None),
                                       "a_worker_that_ends_before_its_pod": (LATE, None),
                                       "a_pod_that_outlives_its_worker": (
                                           [*LATE[:-1], job(12, **at(2, 10, 10, true=["Complete"]))], "runs though its job is over"),
                                       "none_of_those_there_is": (behind_damage(1), "the saved step falls"), **PLANTED}.items():
        report.run(name, lambda changes=changes, wanted=wanted: check(changes, wanted))
    report.run("each_rule_finds_what_no_other_finds", check_each_rule_is_needed)
    report.run("a_fault_is_named_by_what_is_new", check_named_after)
    print(f"result: never-list: {len(PLANTED)} planted violations")
    return report.write()


sys.exit(main())
