#!/usr/bin/env python3
"""Whole jobs on two real nodes: installed by the chart, from images of this build, the short list that `make test` runs.

Usage: jobs_check.py REPOSITORY BUILD GTEST_REPORT [CASE...]. Makes its own cluster (or takes that of cluster.py env). Without root
or without what a node needs everything is skipped, loudly. Exit 1 on a failure.
"""
import os
import re
import sys
import time

import harness
from cases import expect
from kube import eventually, get, holds, kubectl, run
from world import NAMESPACE, OPERATOR_NAMESPACE, RELEASE, Job, children_of, kill_operator, operator_ready


def installed_by_the_chart(world):
    world.images()
    world.install()
    world.claim()
    operator_ready()


def helm_tests_the_release(world):
    """The chart's own test, and what it leaves behind: nothing."""
    done = run("helm", "test", RELEASE, "-n", OPERATOR_NAMESPACE, "--timeout", "5m", check=False, timeout=600)
    expect(done.returncode == 0 and "Succeeded" in done.stdout, f"{done.stdout}{done.stderr}")
    expect(not get("-n", OPERATOR_NAMESPACE, "dsj") and not get("-n", OPERATOR_NAMESPACE, "pods", "-l", "app.kubernetes.io/component=test"), "left behind")


def the_first_job_needs_no_preparation(world):
    """configs/cluster/first-job.yaml as it is, in a namespace without a claim: its initializer makes model and rows."""
    path = os.path.join(world.repository, "configs/cluster/first-job.yaml")
    kubectl("create", "namespace", "first")
    kubectl("label", "namespace", "first", "pod-security.kubernetes.io/enforce=restricted")
    began = time.monotonic()
    kubectl("-n", "first", "apply", "-f", path)
    eventually(lambda: holds(get("-n", "first", "dsj", "first-job"), "Complete"),
               lambda: f"{get('-n', 'first', 'dsj', 'first-job')} {get('-n', 'first', 'pods')}")
    took = time.monotonic() - began
    status = get("-n", "first", "dsj", "first-job")["status"]
    lines = [line for line in kubectl("-n", "first", "logs", "first-job-worker-0-1").stdout.splitlines() if " loss " in line]
    losses = [float(re.search(r" loss ([0-9.]+)", line)[1]) for line in lines]
    expect(status["training"]["step"] == 100 and losses[-1] < losses[0], f"{status['training']} {losses}")
    print(f"result: jobs: the first job is Complete after {took:.0f} s, its loss went from {losses[0]:.2f} to {losses[-1]:.2f}")
    kubectl("delete", "namespace", "first", "--wait=false")


def a_bad_job_is_refused(world):
    """By the webhook, called through its Service with the certificate that the operator put into the bundle."""
    manifest = world.manifest("bad")
    manifest["spec"]["deepspeed"]["config"]["zero_optimizaton"] = {"stage": 2}

    def asked():
        return kubectl("create", "--dry-run=server", "-f", "-", thing=manifest, check=False)
    eventually(lambda: "admission webhook" in asked().stderr, lambda: f"the webhook is asked after a moment: {asked()}")
    done = kubectl("create", "-f", "-", thing=manifest, check=False)
    expect(done.returncode != 0 and "admission webhook" in done.stderr and 'did you mean "zero_optimization"?' in done.stderr, done.stderr)


def two_by_one_to_complete(world):
    """Steps are seen while it trains; every loss is that of `dsj run` on this machine."""
    with Job(world, world.manifest("plain")) as job:
        with harness.Lines("kubectl", "-n", NAMESPACE, "get", "dsj", "plain", "-w") as seen:
            losses = job.complete()
            eventually(lambda: any(" Complete " in line for line in seen.lines()), lambda: f"Complete by get -w: {seen.lines()}")
        # NAME STATE REASON WORKERS STEP PROGRESS RESTARTS CKPT AGE; what is not known yet is blank, and so is REASON in steps.
        rows = [line.split() for line in seen.lines()]
        steps = sorted({int(row[3]) for row in rows if len(row) >= 7 and row[3].isdigit()})
        expect(len(steps) > 2 and steps[-1] == len(losses), f"steps seen: {steps} in {rows}")
        status = job.status()
        expect(abs(float(status["training"]["loss"]) - losses[len(losses)]) < 1e-6, status["training"])
        expect(status["worldSize"] == 2 and status["restarts"]["total"] == 0, status["restarts"])
        nodes = {pod["spec"]["nodeName"] for pod in job.pods(live=False).values()}
        expect(nodes == {"n1", "n2"}, f"on {nodes}")
        log = kubectl("-n", NAMESPACE, "logs", "plain-worker-1-1").stdout
        expect("[rank 1]" in log, f"ranks' output in the pod's: {log[-500:]}")
        print(f"result: jobs: 2 x 1, {len(losses)} losses as on one machine, steps seen by get -w: {steps}")


def a_rank_is_killed(world):
    """Another attempt in the same pods, charged once, from the last checkpoint."""
    with Job(world, world.manifest("rank-kill")) as job:
        job.until_saved(20)
        uids = job.uids()
        took = job.recovered(lambda: job.kill(1, "dsj-train"))
        expect(job.uids() == uids, "the pods are the same")
        job.complete()
        restarts = job.status("restarts")
        expect(restarts["total"] == 1, restarts)
        told = job.status()["lastFailure"]
        expect(told["rank"] == 1 and told["signal"] == 9 and told["pod"] == "rank-kill-worker-1-1", told)
        return harness.Fault("a rank is killed", "another attempt in the same pods", "yes", *took)


def a_pod_is_deleted(world):
    """All ranks save, its successor joins the others, uncounted."""
    with Job(world, world.manifest("pod-delete")) as job:
        job.until_saved(20)
        uids = job.uids()
        took = job.recovered(lambda: kubectl("-n", NAMESPACE, "delete", "pod", "pod-delete-worker-1-1", "--wait=false"))
        job.complete()
        now = {worker: pod["metadata"]["uid"] for worker, pod in job.pods(live=False).items()}
        expect(now[0] == uids[0] and now[1] != uids[1], f"worker 1 alone is made anew: {uids}, {now}")
        restarts = job.status("restarts")
        expect(restarts["total"] == 1 and restarts["counted"] == 0, restarts)
        ends = harness.terminations(job, uids[1])
        expect(ends == [(87, "Preempted")], f"the deleted pod's end: {ends}")
        return harness.Fault("a pod is deleted", "all ranks save one step; the pod is made again, the others stay", "no", *took)


def the_operator_is_killed(world):
    """Training does not notice; a killed operator goes on where it was."""
    with Job(world, world.manifest("operator-kill")) as job:
        kill_operator()  # while the pods are being made
        job.until_step(5)
        uids = job.uids()
        start = time.monotonic()
        kill_operator()
        job.until_step(job.step() + 10)
        operator_ready()
        seconds = time.monotonic() - start
        job.complete()
        expect(job.status("restarts")["total"] == 0, job.status("restarts"))
        expect({w: p["metadata"]["uid"] for w, p in job.pods(live=False).items()} == uids, "the pods are the same")
        return harness.Fault("the operator is killed", f"training continues; the operator is ready again after {seconds:.1f} s",
                             "no restart", harness.NEVER, harness.GOES_ON)


def suspend_and_resume(world):
    """All ranks save one step S, then the pods go; the next step is S + 1 with the loss that it would have had."""
    with Job(world, world.manifest("suspend", save=1000)) as job:
        job.until_step(27)
        uids, start = job.uids(), time.monotonic()
        job.suspend()
        suspended = job.until("Suspended")
        seconds = time.monotonic() - start
        step = suspended["status"]["checkpoint"]["lastSaved"]["step"]
        expect(step == suspended["status"]["training"]["stopStep"] == job.step(), f"{step}, at {job.step()}: {suspended['status']}")
        expect(list(job.saved()) == [step], f"step {step} alone was saved, for the suspension: {job.saved()}")
        harness.removed_only_after_saving(job, step)
        for uid in uids.values():
            expect(harness.terminations(job, uid) == [(87, "Preempted")], harness.terminations(job, uid))
        expect(not [name for name in children_of(NAMESPACE, "suspend") if name.startswith("pod/")], "no pod is left")
        job.rests()
        job.suspend(False)
        job.until_step(step + 1)
        job.complete()
        expect(job.status("checkpoint")["lastRestored"]["step"] == step, job.status("checkpoint"))
        expect(job.status("restarts")["total"] == 0, job.status("restarts"))
        return harness.Fault("suspended", f"all ranks save one step, the pods are gone after {seconds:.1f} s; the job resumes at the "
                             "next step", "no restart", harness.NEVER, harness.NEVER)


def uninstalled(world):
    """The resource stays, and nothing else."""
    run("helm", "uninstall", RELEASE, "-n", OPERATOR_NAMESPACE, "--wait")
    kubectl("get", "crd", "deepspeedjobs.training.dsj.dev")
    eventually(lambda: not get("pods", "-n", OPERATOR_NAMESPACE), "the end of the operator's pod")
    kinds = "deployments,replicasets,pods,services,serviceaccounts,roles,rolebindings,networkpolicies,configmaps,secrets,leases"

    def left():
        found = kubectl("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"
                        "validatingwebhookconfigurations", "-o", "name",
                        "-l", f"app.kubernetes.io/instance={RELEASE}").stdout.split()
        names = [f"{thing['kind']}/{thing['metadata']['name']}" for thing in get(kinds, "-n", OPERATOR_NAMESPACE) or []]
        return found + [name for name in names if name not in ("ServiceAccount/default", "ConfigMap/kube-root-ca.crt")]
    eventually(lambda: not left(), lambda: f"left behind: {left()}")  # the garbage collector has its own pace


CASES = [installed_by_the_chart, helm_tests_the_release, the_first_job_needs_no_preparation, a_bad_job_is_refused, two_by_one_to_complete,
         a_rank_is_killed, a_pod_is_deleted, the_operator_is_killed, suspend_and_resume, uninstalled]

if __name__ == "__main__":
    sys.exit(harness.main("ClusterJobs", __file__, CASES, nodes=2))
