"""Volcano beside the API server: its own manifests, out of its module, and its three programs as processes of this machine, each with
the rights that its own installation gives it.

Nothing of Volcano's is copied into this repository.
"""
import os
import socket

import certificates
import control_plane
import installation
import processes
import programs
from settings import LONG, PKI, STATE

NAMESPACE = "volcano-system"
# Program: its service account.
PROGRAMS = {"vc-scheduler": "volcano-scheduler", "vc-controller-manager": "volcano-controllers", "vc-webhook-manager": "volcano-admission"}
SCHEDULER = """actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enablePreemptable: false}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf, enablePreemptable: false}, {name: predicates}, {name: capacity}, {name: nodeorder}]
"""


def manifests():
    """Volcano's own installation, as objects."""
    with open(os.path.join(programs.kept("vc-scheduler"), "volcano-development.yaml"), "rb") as text:
        return installation.objects(text.read())


def _start(program, *flags):
    account = PROGRAMS[program]
    control_plane.user(account, f"/CN=system:serviceaccount:{NAMESPACE}:{account}")
    processes.start(program, [programs.path_of(program), f"--kubeconfig={STATE}/{account}.kubeconfig", "--logtostderr", "-v=3", *flags])


def _serves(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def up():
    """Returns when its webhooks answer and it has made its default queue."""
    if processes.pid("vc-scheduler"):
        return
    programs.need([*PROGRAMS, "kubectl"])
    port = control_plane.free_port()
    certificates.issue("volcano", "/CN=volcano", ["IP:127.0.0.1"])
    things = manifests()
    for thing in things:
        for hook in thing.get("webhooks", []):
            installation.by_url(hook["clientConfig"], port)
    installation.install(things)
    _start("vc-webhook-manager", f"--port={port}", "--listen-address=127.0.0.1", f"--webhook-url=https://127.0.0.1:{port}",
           f"--tls-cert-file={PKI}/volcano.crt", f"--tls-private-key-file={PKI}/volcano.key", f"--ca-cert-file={PKI}/ca.crt")
    processes.wait_for(LONG, "Volcano's webhooks", lambda: _serves(port), "vc-webhook-manager")
    _start("vc-controller-manager", "--leader-elect=false")
    configuration = os.path.join(STATE, "volcano-scheduler.yaml")
    with open(configuration, "w", encoding="ascii") as out:
        out.write(SCHEDULER)
    _start("vc-scheduler", "--leader-elect=false", f"--scheduler-conf={configuration}", "--cache-dumper=false")
    queue = "/apis/scheduling.volcano.sh/v1beta1/queues/default"
    processes.wait_for(LONG, "Volcano's default queue", lambda: control_plane.get(queue)[0] == 200, "vc-scheduler")


def down():
    for program in PROGRAMS:
        processes.forget(program)
