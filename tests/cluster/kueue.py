"""Kueue beside the API server: its own manifests, out of its module, and its controller manager as a process of this machine.

Nothing of Kueue's is copied into this repository. What programs.py keeps of the module is rendered by kubectl's kustomize;
then its webhooks are called by URL, and the API server finds its list of what waits through a Service that is a name.
The program wants certificates in /etc/kueue and /visibility, so it runs in a root directory of its own, which takes root.
"""
import json
import os
import shutil
import socket

import certificates
import control_plane
import installation
import processes
import programs
from settings import LONG, PKI, STATE, ClusterError

NAME = "kueue"
ROOT = os.path.join(STATE, "kueue")
NAMESPACE = "kueue-system"
READY_SECONDS = 45  # a gang that is admitted, but not ready so long, goes back to its queue
VISIBILITY_PORT = 8082  # Kueue knows no other
# A Service that is a name: without this the API server looks for its pods' addresses.
APISERVER_FLAG = "--enable-aggregator-routing=false"
ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"  # where a pod finds its own


def check_machine():
    """Says why Kueue cannot run here."""
    if processes.pid(NAME):
        return
    if os.geteuid() != 0:
        raise ClusterError("Kueue's program needs a root directory of its own, and only root can give it one")
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", VISIBILITY_PORT))
        except OSError as problem:
            raise ClusterError(f"Kueue needs port {VISIBILITY_PORT}: {problem}") from None


def manifests():
    """Kueue's own installation, as objects."""
    return installation.objects(installation.kubectl("kustomize", os.path.join(programs.kept(NAME), "default")))


def _adapted(thing, port):
    """Without a network between the API server and Kueue's Services."""
    if thing["kind"] == "CustomResourceDefinition":
        conversion = thing["spec"].get("conversion", {})
        if conversion.get("strategy") == "Webhook":
            installation.by_url(conversion["webhook"]["clientConfig"], port)
    for hook in thing.get("webhooks", []):
        installation.by_url(hook["clientConfig"], port)
    if thing["kind"] == "APIService":
        thing["spec"]["service"]["port"] = VISIBILITY_PORT
    return thing


def _configuration(ports):
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['health']}"}, "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": ports["webhook"], "certDir": "/certificates"},
            "leaderElection": {"leaderElect": False}, "internalCertManagement": {"enable": False},
            "waitForPodsReady": {"timeout": f"{READY_SECONDS}s", "requeuingStrategy": {
                "timestamp": "Eviction", "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}},
            "clientConnection": {"qps": 300, "burst": 600}, "integrations": {"frameworks": ["batch/job", "pod"]}}


def _fill_root(ports):
    os.makedirs(ROOT, exist_ok=True)
    for folder in ("certificates", "visibility", "etc/kueue/metrics/certs"):
        path = os.path.join(ROOT, folder)
        os.makedirs(path, exist_ok=True)
        for kind in ("crt", "key"):
            shutil.copy(os.path.join(PKI, f"kueue.{kind}"), os.path.join(path, f"tls.{kind}"))
    os.makedirs(os.path.join(ROOT, "tmp"), exist_ok=True)
    shutil.copy(programs.path_of(NAME), os.path.join(ROOT, "manager"))
    with open(os.path.join(ROOT, "configuration.json"), "w", encoding="ascii") as out:
        json.dump(_configuration(ports), out)


def _serves(ports):
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", ports["webhook"])) != 0:
            return False
    return control_plane.get("/apis/visibility.kueue.x-k8s.io/v1beta2")[0] == 200


def _install(port):
    things = [_adapted(thing, port) for thing in manifests()]
    things.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kueue-visibility-server", "namespace": NAMESPACE},
                   "spec": {"type": "ExternalName", "externalName": "localhost"}})
    installation.install(things)


def _give_account():
    """What a kubelet mounts: Kueue has the rights that its own installation gives it."""
    folder = os.path.join(ROOT, ACCOUNT)
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(PKI, "ca.crt"), folder)
    token = installation.kubectl("-n", NAMESPACE, "create", "token", "kueue-controller-manager", "--duration=24h")
    for name, text in (("token", token.strip()), ("namespace", NAMESPACE.encode())):
        with open(os.path.join(folder, name), "wb") as out:
            out.write(text)


def up():
    """Returns when it answers."""
    if processes.pid(NAME):
        return
    programs.need([NAME, "kubectl"])
    ports = {name: control_plane.free_port() for name in ("webhook", "health")}
    certificates.issue("kueue", "/CN=kueue", ["IP:127.0.0.1", "DNS:localhost"])
    _fill_root(ports)
    _install(ports["webhook"])
    _give_account()
    place = control_plane.server().removeprefix("https://").split(":")
    processes.start(NAME, ["env", f"KUBERNETES_SERVICE_HOST={place[0]}", f"KUBERNETES_SERVICE_PORT={place[1]}",
                           "chroot", ROOT, "/manager", "--config=/configuration.json", "--zap-log-level=3"])
    processes.wait_for(LONG, "Kueue", lambda: _serves(ports), NAME)


def down():
    processes.forget(NAME)
