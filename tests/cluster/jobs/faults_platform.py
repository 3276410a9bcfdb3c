"""What the platform does to a job: agents, API server, nodes, leaders and upgrades of the operator."""
import os
import signal
import time

import frozen
from harness import GOES_ON, NEVER, Fault, terminations
from cases import expect
from kube import eventually, get, holds, kubectl, run
from world import (DEPLOYMENT, NAMESPACE, OPERATOR_NAMESPACE, RELEASE, Job, operator_pods, operator_ready, process_of)

OPERATOR_NODE = "n1"  # so that the other nodes can be broken
LOST_NODE = {"failurePolicy": {"nodeFailure": {"graceSeconds": 5, "forceDeleteAfterSeconds": 20}}}


def installed(world):
    world.images()
    world.install("nodeSelector.kubernetes\\.io/hostname=" + OPERATOR_NODE)
    world.claim()
    operator_ready()


def uninstalled(world):
    run("helm", "uninstall", RELEASE, "-n", OPERATOR_NAMESPACE, "--wait")
    kubectl("get", "crd", "deepspeedjobs.training.dsj.dev")


def no_restart(job, uids):
    """Nothing was restarted, no pod replaced."""
    expect(job.status("restarts")["total"] == 0, job.status("restarts"))
    expect(job.status("training")["attempt"] == 1, job.status("training"))
    now = {worker: pod["metadata"]["uid"] for worker, pod in job.pods(live=False).items()}
    expect(now == uids, f"other pods: {now}, {uids}")


def agent_0_is_killed(world):
    with Job(world, world.manifest("agent-kill")) as job:
        job.until_saved(20)
        before = job.uids()
        took = job.recovered(lambda: job.kill(0, "dsj-agent"))
        after = job.uids()
        expect(after[1] == before[1] and after[0] != before[0], f"{before}, then {after}")
        job.complete()
        restarts = job.status("restarts")
        expect(restarts["total"] == 1 and restarts["counted"] == 1, restarts)
        told = job.status()["lastFailure"]
        expect(told["pod"] == "agent-kill-worker-0-1" and told["exitCode"] == 137, told)
        return Fault("agent 0 is killed", "its pod is replaced, the others stay and join it", "yes", *took)


def the_key_of_worker_0_is_deleted(world):
    """The Secret, then worker 0's pod: its successor finds no key, and all begin a new run with another. On another node: a kubelet
    keeps an immutable Secret while it knows a pod that mounts it."""
    eventually(nodes_ready, "all nodes")
    with Job(world, world.manifest("key-loss")) as job:
        job.until_saved(20)
        before, node = job.uids(), job.pods()[0]["spec"]["nodeName"]

        def lose():
            kubectl("cordon", node)
            kubectl("-n", NAMESPACE, "delete", "secret", "key-loss-dsj-key-1")
            kubectl("-n", NAMESPACE, "delete", "pod", "key-loss-worker-0-1", "--wait=false")
        try:
            took = job.recovered(lose)
        finally:
            kubectl("uncordon", node)
        after = job.uids()
        expect(not set(before.values()) & set(after.values()), f"{before}, then {after}")
        job.complete()
        expect(job.status("restarts")["counted"] == 0, job.status("restarts"))
        left = [secret["metadata"]["name"] for secret in get("-n", NAMESPACE, "secrets") or [] if "-dsj-key-" in secret["metadata"]["name"]]
        expect(not left, f"keys of a finished job: {left}")
        return Fault("worker 0's key and its pod are deleted", "after 30 s without a key all pods are replaced, with another key", "no", *took)


def the_api_server_restarts(world):
    with Job(world, world.manifest("api-restart")) as job:
        job.until_step(10)
        uids, start = job.uids(), time.monotonic()
        run(world.cluster, "restart", "apiserver", timeout=300)
        step = job.step()
        eventually(lambda: job.status("training").get("step", 0) > step, "a newer step in the status")
        seconds = time.monotonic() - start
        job.complete()
        no_restart(job, uids)
        return Fault("the API server is restarted", f"training continues; the status shows steps again after {seconds:.1f} s",
                     "no restart", NEVER, GOES_ON)


def the_api_server_is_away(world, away=120):
    """Two minutes of training without it: steps and checkpoints go on; what happened is in the status afterwards. There are twice
    as many steps as these minutes take."""
    with Job(world, world.manifest("api-away", steps=600, cpu="150m")) as job:
        job.until_saved(20)
        uids, step = job.uids(), job.step()
        run(world.cluster, "stop", "apiserver")
        time.sleep(away)
        later, saved = job.step(), max(job.saved())
        start = time.monotonic()
        run(world.cluster, "restart", "apiserver", timeout=300)
        expect(later > step, f"step {later} after {step}")
        job.until_saved(saved)
        seconds = time.monotonic() - start
        for worker in (0, 1):  # what is left need not be slow
            job.limit(worker, "2")
        job.complete()
        no_restart(job, uids)
        return Fault("the API server is away for two minutes", "training continues and saves; the status catches up within "
                     f"{seconds:.1f} s of its return", "no restart", NEVER, GOES_ON)


def nodes_ready():
    """All of them, without a taint: those that an earlier case disturbed take pods again."""
    nodes = get("nodes") or []
    return nodes and all(holds(node, "Ready") and not node["spec"].get("taints") for node in nodes)


def a_node_loses_its_power(world):
    eventually(nodes_ready, "all nodes")
    with Job(world, world.manifest("power", cpu="300m", **LOST_NODE)) as job:
        job.until_saved(20)
        pods = job.pods()
        expect(len({pod["spec"]["nodeName"] for pod in pods.values()}) == 2, "the workers are on two nodes")
        victim = max(worker for worker, pod in pods.items() if pod["spec"]["nodeName"] != OPERATOR_NODE)
        node, other = pods[victim]["spec"]["nodeName"], 1 - victim
        before = job.uids()
        took = job.recovered(lambda: run(world.cluster, "crash", node[1:]))
        pods = job.pods()
        expect(pods[other]["metadata"]["uid"] == before[other], "the survivor is the same pod")
        expect(pods[victim]["spec"]["nodeName"] != node, f"the replacement is on {node}, too")
        restarts = job.status("restarts")
        expect(restarts["total"] == 1 and restarts["counted"] == 0, restarts)
        expect(job.status()["lastFailure"]["reason"] == "NodeLost" and job.status()["lastFailure"]["node"] == node, job.status()["lastFailure"])
        run(world.cluster, "up", "--nodes", "3", timeout=300)
        job.complete()
        return Fault("a node loses its power", "its pods are replaced on another node, the others stay", "no", *took)


def a_node_freezes_and_comes_back(world):
    """Agent 0 and its rank stop in the middle and go on when another attempt trains: they publish nothing."""
    eventually(nodes_ready, "all nodes")
    with Job(world, world.manifest("freeze", not_on=[OPERATOR_NODE], cpu="300m", **LOST_NODE)) as job:
        job.until_saved(20)
        pod = job.pods()[0]
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        processes = frozen.of_node(node[1:])
        try:
            took = job.recovered(lambda: frozen.freeze(processes))
            old, saved = [pid for pid in frozen.of_pod(uid) if frozen.is_ours(pid)], job.saved()
            expect(len(old) == 2 and set(old) <= set(processes), f"agent and rank {old} are of the node")
            expect(job.pods()[0]["spec"]["nodeName"] != node, "the replacement is elsewhere")
            frozen.thaw(old)  # and not the kubelet, which would end them
            eventually(lambda: not [pid for pid in old if frozen.is_rank(pid)], "the end of the old rank")
        finally:
            frozen.thaw(processes)
        eventually(lambda: not [pid for pid in old if frozen.alive(pid)], "the end of the old agent by the kubelet")
        published = {step: attempt for step, (attempt, _) in job.saved().items() if step not in saved}
        expect(all(attempt > 1 for attempt in published.values()), f"the old attempt published: {published}")
        eventually(lambda: kubectl("get", "node", node, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}").stdout == "True",
                   "the node's return")
        job.complete()
        expect(job.status("restarts")["counted"] == 0, job.status("restarts"))
        return Fault("a node freezes and continues later", "as for a lost node; the rank that continues there ends and publishes nothing", "no",
                     *took)


def drained(world, name, victim):
    """The node of one worker is drained: that worker alone moves, and the attempt after the saved step is the only one more."""
    eventually(nodes_ready, "all nodes")
    with Job(world, world.manifest(name, cpu="500m")) as job:
        job.until_saved(20)
        pods, before = job.pods(), job.uids()
        node, other = pods[victim]["spec"]["nodeName"], 1 - victim
        expect(pods[other]["spec"]["nodeName"] != node, "the workers are on two nodes")
        try:
            took = job.recovered(lambda: kubectl(
                "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s",
                f"--pod-selector=training.dsj.dev/job-name={name}"))
            pods = job.pods()
            expect(pods[victim]["spec"]["nodeName"] != node, "the replacement is elsewhere")
            expect(pods[other]["metadata"]["uid"] == before[other], "the survivor is the same pod")
        finally:
            kubectl("uncordon", node)
        job.complete()
        uid = before[victim]
        expect(terminations(job, uid) == [(87, "Preempted")], terminations(job, uid))
        restarts = job.status("restarts")
        expect(restarts["total"] == 1 and restarts["counted"] == 0, restarts)
        expect(job.status("training")["attempt"] == 2, job.status("training"))
        restored = job.status("checkpoint")["lastRestored"]["step"]
        expect(restored in job.saved() and restored % 20 != 0, f"it went on from step {restored}, saved for the drain: {sorted(job.saved())}")
        return took


def a_node_is_drained(world):
    took = drained(world, "drain", 1)
    return Fault("a node is drained", "all ranks save one step; the drained worker moves, the others stay", "no", *took)


def the_node_of_worker_0_is_drained(world):
    took = drained(world, "drain-zero", 0)
    return Fault("the node of worker 0 is drained", "the same; the others wait for the next worker 0", "no", *took)


def leader():
    lease = get("lease", DEPLOYMENT, "-n", OPERATOR_NAMESPACE) or {}
    return lease.get("spec", {}).get("holderIdentity", "")


def the_leader_changes(world):
    """The leader hangs, the other takes over; when the first goes on it leads no more."""
    kubectl("-n", OPERATOR_NAMESPACE, "scale", "deployment", DEPLOYMENT, "--replicas=2")
    operator_ready()
    try:
        with Job(world, world.manifest("leader", steps=300, cpu="300m")) as job:
            job.until_step(5)
            first = leader()
            pod = next(pod for pod in operator_pods() if pod["metadata"]["name"] == first)
            process, start = process_of(pod["metadata"]["uid"], "dsj-operator"), time.monotonic()
            os.kill(process, signal.SIGSTOP)
            try:
                eventually(lambda: leader() not in ("", first), "another leader")
                seconds = time.monotonic() - start
                job.suspend()
                job.until("Suspended")
            finally:
                os.kill(process, signal.SIGCONT)
            job.suspend(False)
            job.complete()
            expect(job.status("restarts")["total"] == 0, job.status("restarts"))
            return Fault("the leading operator hangs", f"the other one leads after {seconds:.1f} s; the first writes nothing when it "
                         "continues", "no restart", NEVER, GOES_ON)
    finally:
        kubectl("-n", OPERATOR_NAMESPACE, "scale", "deployment", DEPLOYMENT, "--replicas=1")
        operator_ready()


def the_operator_is_upgraded(world):
    """Another tag of both images: what runs goes on in the pods that it has."""
    world.images("next")
    with Job(world, world.manifest("upgrade", cpu="500m")) as job:
        job.until_step(5)
        uids, start = job.uids(), time.monotonic()
        world.upgrade("next", "image.worker.tag=next", "nodeSelector.kubernetes\\.io/hostname=" + OPERATOR_NODE)
        operator_ready()
        seconds = time.monotonic() - start
        expect(operator_pods()[0]["spec"]["containers"][0]["image"].endswith(":next"), "the new operator runs")
        job.until_step(job.step() + 5)
        job.complete()
        no_restart(job, uids)
        return Fault("the operator is upgraded", f"pods and losses are the same; the new operator is ready after {seconds:.1f} s",
                     "no restart", NEVER, GOES_ON)


def another_controller_changes_the_service(world):
    """The operator restores it, ever less often, and says which field, and who writes it. No pod and no step suffers."""
    with Job(world, world.manifest("contested", steps=200, cpu="300m")) as job:
        job.until_step(5)
        uids = job.uids()
        selector = get("-n", NAMESPACE, "service", "contested-worker")["spec"]["selector"]

        def changed():
            now = get("-n", NAMESPACE, "service", "contested-worker")["spec"]["selector"]
            if now == selector:
                kubectl("-n", NAMESPACE, "patch", "service", "contested-worker", "--field-manager=another-controller", "--type=merge",
                        "-p", '{"spec":{"selector":{"mesh":"on"}}}')
            return holds(get("-n", NAMESPACE, "dsj", "contested"), "Contested")
        eventually(changed, lambda: f"{get('-n', NAMESPACE, 'dsj', 'contested')}")
        told = next(one for one in get("-n", NAMESPACE, "dsj", "contested")["status"]["conditions"] if one["type"] == "Contested")
        expect(told["reason"] == "Reverted" and "Service contested-worker: spec.selector.mesh is changed again and again, last by "
               "another-controller" in told["message"], told)
        eventually(lambda: get("-n", NAMESPACE, "service", "contested-worker")["spec"]["selector"] == selector, "it is restored")
        job.complete()
        no_restart(job, uids)


CASES = [agent_0_is_killed, the_key_of_worker_0_is_deleted, the_api_server_restarts, the_api_server_is_away, a_node_loses_its_power,
         a_node_freezes_and_comes_back, a_node_is_drained, the_node_of_worker_0_is_drained, the_leader_changes, the_operator_is_upgraded,
         another_controller_changes_the_service]
