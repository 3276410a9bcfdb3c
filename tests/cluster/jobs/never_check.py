#!/usr/bin/env python3
"""The checker of the never-list is itself checked: a good history has no violation, and each planted one is found.

Usage: never_check.py GTEST_REPORT. Exit 1 on a failure."""
import copy
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from cases import Report, expect  # noqa: E402
from history import Change  # noqa: E402
from never import violations  # noqa: E402

LABEL = "training.dsj.dev/"


def job(version, spec=None, **status):
    conditions = [{"type": kind, "status": "True"} for kind in status.pop("true", [])]
    return Change("job", "MODIFIED", {
        "metadata": {"name": "j", "uid": "u", "resourceVersion": str(version), "generation": 1},
        "spec": dict({"training": {"maxSteps": 10}}, **(spec or {})),
        "status": dict(status, conditions=conditions, observedGeneration=1, at=version)})


def pod(version, worker, life, phase="Running", what="MODIFIED"):
    return Change("pod", what, {
        "metadata": {"name": f"j-worker-{worker}-{life}", "uid": f"p{worker}-{life}", "resourceVersion": str(version),
                     "ownerReferences": [{"uid": "u"}],
                     "labels": {LABEL + "job-name": "j", LABEL + "replica-index": str(worker), LABEL + "incarnation": str(life)}},
        "status": {"phase": phase}})


def at(attempt, step, saved, **more):
    return dict({"training": {"attempt": attempt, "step": step}, "checkpoint": {"lastSaved": {"step": saved}}}, **more)


GOOD = [job(1), pod(2, 0, 1), pod(3, 1, 1), job(4, **at(1, 4, 4)), pod(5, 1, 1, "Failed"), pod(6, 1, 2), job(7, **at(2, 10, 10)),
        pod(8, 0, 1, "Succeeded"), pod(9, 1, 2, "Succeeded"), job(10, **at(2, 10, 10, true=["Complete"])),
        pod(11, 1, 1, "Failed", "DELETED")]


def deleted(version):
    change = job(version)
    change.what = "DELETED"
    return change


def same_again(version):
    change = copy.deepcopy(job(7, **at(2, 10, 10)))
    change.version = version
    change.object["metadata"]["resourceVersion"] = str(version)
    return change


# What is planted, and a word of what must be said of it.
PLANTED = {
    "complete_before_the_last_step": (GOOD[:7] + [job(8, **at(2, 9, 9, true=["Complete"]))], "Complete at step 9"),
    "complete_without_the_last_checkpoint": (GOOD[:7] + [job(8, **at(2, 10, 8, true=["Complete"]))], "saved step falls"),
    "an_attempt_that_falls": (GOOD + [job(12, **at(1, 10, 10, true=["Complete"]))], "the attempt falls"),
    "a_saved_step_that_falls": (GOOD[:4] + [job(12, **at(1, 4, -1))], "the saved step falls"),
    "an_attempt_behind_the_newest_checkpoint": (GOOD[:4] + [job(12, training={"attempt": 2, "step": 2}, checkpoint={
        "lastSaved": {"step": 4}, "lastRestored": {"step": 2}})], "begins at step 2"),
    "two_pods_of_one_worker": (GOOD[:4] + [pod(5, 1, 2)], "two pods of worker 1"),
    "a_pod_made_for_a_suspended_job": ([job(1, {"suspend": True}, true=["Suspended"]), pod(2, 0, 1)], "made for a job that is Suspended"),
    "a_pod_of_a_suspended_job": ([pod(1, 0, 1), job(2, {"suspend": True}, true=["Suspended"])], "a pod of a suspended job"),
    "a_pod_made_for_a_finished_job": (GOOD + [pod(12, 0, 2)], "made for a job that is Complete"),
    "a_pod_that_outlives_its_job": (GOOD[:7] + [pod(8, 0, 1, "Succeeded"), job(9, **at(2, 10, 10, true=["Complete"]))], "runs though"),
    "a_pod_of_a_refused_job": ([job(1, phase="Refused"), pod(2, 0, 1)], "a pod of a refused job"),
    "a_child_of_a_deleted_job": (GOOD[:3] + [deleted(4)], "left behind"),
    "a_pod_made_for_a_deleted_job": (GOOD[:3] + [deleted(4), pod(5, 0, 2)], "made for a deleted job"),
    "complete_taken_back": (GOOD + [job(12, **at(2, 10, 10))], "taken back"),
    "complete_and_failed": (GOOD + [job(12, **at(2, 10, 10, true=["Complete", "Failed"]))], "complete and failed"),
    "a_write_that_changes_nothing": (GOOD[:7] + [same_again(12)], "changes nothing"),
}


def check(changes, wanted):
    found = violations(changes)
    expect(any(wanted in sentence for sentence in found) if wanted else not found, f"wanted {wanted!r}, found {found}")


def main():
    report = Report("NeverList", sys.argv[1])
    for name, (changes, wanted) in {"a_good_history": (GOOD, None), **PLANTED}.items():
        report.run(name, lambda changes=changes, wanted=wanted: check(changes, wanted))
    print(f"result: never-list: {len(PLANTED)} planted violations")
    return report.write()


sys.exit(main())
