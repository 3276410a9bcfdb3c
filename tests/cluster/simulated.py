"""Simulated nodes: kwok plays kubelet for them. A pod there runs as far as the API server is told; no container does."""
import json

import control_plane
import processes
import programs
from settings import KUBECONFIG, LONG

MARK = "kwok.x-k8s.io/node"
CAPACITY = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}


def _node(index, tainted):
    name = f"simulated-{index}"
    spec = {"taints": [{"key": MARK, "value": "fake", "effect": "NoSchedule"}]} if tainted else {}
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "annotations": {MARK: "fake"},
                         "labels": {"type": "simulated", "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}},
            "spec": spec, "status": {"capacity": CAPACITY, "allocatable": CAPACITY}}


def ready():
    code, text = control_plane.get("/api/v1/nodes?labelSelector=type%3Dsimulated")
    nodes = json.loads(text)["items"] if code == 200 else []
    return sum(any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", []))
               for node in nodes)


def up(count, tainted):
    """Makes what is missing of `count` nodes; returns when all are Ready. `tainted`: only pods that say so go there."""
    programs.need(["kwok"])
    stages = programs.path_of("kwok").removesuffix("kwok") + "kwok-stages.yaml"
    processes.start("kwok", [programs.path_of("kwok"), "--kubeconfig", KUBECONFIG, "--config", stages,
                             "--manage-all-nodes=false", f"--manage-nodes-with-annotation-selector={MARK}=fake",
                             "--node-lease-duration-seconds=40"])
    for index in range(count):
        control_plane.create("/api/v1/nodes", _node(index, tainted))
    processes.wait_for(LONG, "simulated nodes", lambda: ready() >= count, "kwok")


def down():
    processes.forget("kwok")
