"""Kueue beside the API server: its own manifests, out of its module, and its controller manager as a process of this machine.

Nothing of Kueue's is copied into this repository. What programs.py keeps of the module is rendered by kubectl's kustomize;
then its webhooks are called by URL, and the API server finds its list of what waits through a Service that is a name.
The program wants certificates in /etc/kueue and /visibility, so it runs in a root directory of its own, which takes root.
"""
import json
import os
import shutil
import socket
import subprocess

import certificates
import control_plane
import processes
import programs
from settings import LONG, PKI, STATE, ClusterError

NAME = "kueue"
ROOT = os.path.join(STATE, "kueue")
NAMESPACE = "kueue-system"
VISIBILITY_PORT = 8082  # Kueue knows no other
# A Service that is a name: without this the API server looks for its pods' addresses.
APISERVER_FLAG = "--enable-aggregator-routing=false"
WANTED = ("Namespace", "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService",
          "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
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


def _kubectl(*words, given=None):
    done = subprocess.run([programs.path_of("kubectl"), *words], input=given, capture_output=True, check=False,
                          env=dict(os.environ, KUBECONFIG=os.path.join(STATE, "admin.kubeconfig")))
    if done.returncode != 0:
        raise ClusterError(f"kubectl {words[0]}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def manifests():
    """Kueue's own installation, as objects."""
    text = _kubectl("kustomize", os.path.join(programs.kept(NAME), "default"))
    wanted = [part for part in text.split(b"\n---\n")
              if any(f"\nkind: {kind}\n".encode() in b"\n" + part for kind in WANTED)]
    made = _kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-", given=b"\n---\n".join(wanted))
    things, rest = [], made.decode().strip()
    while rest:  # one object behind the other
        thing, end = json.JSONDecoder().raw_decode(rest)
        things.append(thing)
        rest = rest[end:].strip()
    return things


def _by_url(client, port, authority):
    service = client.pop("service")
    client["url"] = f"https://127.0.0.1:{port}{service.get('path', '')}"
    client["caBundle"] = authority


def _adapted(thing, port):
    """Without a network between the API server and Kueue's Services."""
    authority = certificates.data("ca.crt")
    if thing["kind"] == "CustomResourceDefinition":
        conversion = thing["spec"].get("conversion", {})
        if conversion.get("strategy") == "Webhook":
            _by_url(conversion["webhook"]["clientConfig"], port, authority)
    for hook in thing.get("webhooks", []):
        _by_url(hook["clientConfig"], port, authority)
    if thing["kind"] == "APIService":
        thing["spec"]["service"]["port"] = VISIBILITY_PORT
    return thing


def _configuration(ports):
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{ports['health']}"}, "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": ports["webhook"], "certDir": "/certificates"},
            "leaderElection": {"leaderElect": False}, "internalCertManagement": {"enable": False},
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
    apply = ("apply", "--server-side", "-f", "-")
    # What the others stand in, or are served by, comes first.
    for kinds in (("Namespace", "CustomResourceDefinition"), [*WANTED[2:], "Service"]):
        _kubectl(*apply, given=json.dumps({"apiVersion": "v1", "kind": "List", "items": [
            thing for thing in things if thing["kind"] in kinds]}).encode())
    crds = [thing for thing in things if thing["kind"] == "CustomResourceDefinition"]
    processes.wait_for(LONG, "list of Kueue's kinds", lambda: all(_lists(crd) for crd in crds))


def _lists(crd):
    """The API server serves every version of it, and says so."""
    answers = [control_plane.get(f"/apis/{crd['spec']['group']}/{version['name']}")
               for version in crd["spec"]["versions"] if version["served"]]
    return all(status == 200 and crd["spec"]["names"]["plural"] in {resource["name"] for resource in json.loads(body)["resources"]}
               for status, body in answers)


def _give_account():
    """What a kubelet mounts: Kueue has the rights that its own installation gives it."""
    folder = os.path.join(ROOT, ACCOUNT)
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(PKI, "ca.crt"), folder)
    token = _kubectl("-n", NAMESPACE, "create", "token", "kueue-controller-manager", "--duration=24h")
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
