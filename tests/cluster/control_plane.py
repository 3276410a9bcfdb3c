"""The control plane, processes of this machine: etcd and the API server; controller manager and scheduler on demand.

Without real nodes it listens on 127.0.0.1 only and needs no root; ports are free ones, kept for the cluster's life."""
import contextlib
import glob
import json
import os
import random
import shlex
import socket
import ssl
import urllib.error
import urllib.request

import certificates
import processes
import programs
from settings import IPV6, KUBECONFIG, LONG, NODE6, NODE_NET, PKI, SERVICE_NET, SERVICE_NET6, STATE, ClusterError, say

PARTS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
SHORT = {"apiserver": "kube-apiserver", "controller-manager": "kube-controller-manager", "scheduler": "kube-scheduler"}


def _taken():
    """Ports of the clusters beside this one, also those that nobody listens on yet."""
    for path in glob.glob(os.path.join(os.path.dirname(STATE), "*", "ports.json")):
        with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as kept:
            yield from json.load(kept).values()


def free_port():
    """Below the range that connections take their own ports from: it stays free over a restart of its process."""
    taken = set(_taken())
    while True:
        port = random.randrange(15000, 30000)
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def ports():
    path = os.path.join(STATE, "ports.json")
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii") as out:
            json.dump({name: free_port() for name in ("etcd", "peer", "api")}, out)
    with open(path, encoding="ascii") as kept:
        return json.load(kept)


BRIDGE_MARK = os.path.join(STATE, "bridge")


def on_bridge():
    return os.path.exists(BRIDGE_MARK)


def _address():
    """Where the API server listens: the nodes' bridge once there is one, else this machine alone."""
    return f"{NODE_NET}.1" if on_bridge() else _loopback()


def _loopback():
    return "::1" if IPV6 else "127.0.0.1"


def server():
    address = _address()
    return f"https://{f'[{address}]' if ':' in address else address}:{ports()['api']}"


def _ask(request):
    """(status, body) with the admin's certificate; (0, reason) without an answer."""
    context = ssl.create_default_context(cafile=certificates.file("ca.crt"))
    context.load_cert_chain(certificates.file("admin.crt"), certificates.file("admin.key"))
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, urllib.error.URLError) as error:
        return 0, str(error)


def get(path):
    return _ask(server() + path)


def merge_patch(path, patch):
    status, body = _ask(urllib.request.Request(server() + path, json.dumps(patch).encode(), method="PATCH",
                                               headers={"Content-Type": "application/merge-patch+json"}))
    if status != 200:
        raise ClusterError(f"{path}: {status} {body}")


def create(path, thing):
    """One that is there already stays."""
    status, body = _ask(urllib.request.Request(server() + path, json.dumps(thing).encode(), method="POST",
                                               headers={"Content-Type": "application/json"}))
    if status not in (201, 409):
        raise ClusterError(f"{path}: {status} {body}")


def ready():
    return get("/readyz")[0] == 200


def _etcd():
    url = f"http://127.0.0.1:{ports()['etcd']}"
    peer = f"http://127.0.0.1:{ports()['peer']}"
    return [programs.path_of("etcd"), "--name=test", f"--data-dir={STATE}/etcd", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls={url}", f"--advertise-client-urls={url}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}"]


def _apiserver():
    address = _address()
    flags = {
        "etcd-servers": f"http://127.0.0.1:{ports()['etcd']}",
        "secure-port": ports()["api"],
        "bind-address": address,
        "advertise-address": NODE6 if IPV6 else f"{NODE_NET}.1",
        "service-cluster-ip-range": SERVICE_NET6 if IPV6 else f"{SERVICE_NET}.0/16",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "allow-privileged": "true",
        "enable-aggregator-routing": "true",
        "requestheader-client-ca-file": f"{PKI}/ca.crt",
        "requestheader-allowed-names": "front-proxy",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": f"{PKI}/front-proxy.crt",
        "proxy-client-key-file": f"{PKI}/front-proxy.key",
        "client-ca-file": f"{PKI}/ca.crt",
        "tls-cert-file": f"{PKI}/apiserver.crt",
        "tls-private-key-file": f"{PKI}/apiserver.key",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-signing-key-file": f"{PKI}/sa.key",
        "service-account-key-file": f"{PKI}/sa.pub",
        "kubelet-client-certificate": f"{PKI}/admin.crt",
        "kubelet-client-key": f"{PKI}/admin.key",
        "kubelet-preferred-address-types": "InternalIP",
    }
    if address == _loopback():  # nobody to publish the address to, and a loopback address is refused there
        flags["endpoint-reconciler-type"] = "none"
    extra = shlex.split(os.environ.get("APISERVER_FLAGS", ""))
    return [programs.path_of("kube-apiserver"), *(f"--{name}={value}" for name, value in flags.items()), *extra]


def _controller_manager():
    extra = shlex.split(os.environ.get("CONTROLLER_FLAGS", ""))
    return [programs.path_of("kube-controller-manager"), f"--kubeconfig={STATE}/controller-manager.kubeconfig",
            "--secure-port=0", "--leader-elect=false", "--use-service-account-credentials",
            f"--service-account-private-key-file={PKI}/sa.key", f"--root-ca-file={PKI}/ca.crt",
            f"--cluster-signing-cert-file={PKI}/ca.crt", f"--cluster-signing-key-file={PKI}/ca.key",
            "--kube-api-qps=300", "--kube-api-burst=600", *extra]


def _scheduler():
    return [programs.path_of("kube-scheduler"), f"--kubeconfig={STATE}/scheduler.kubeconfig", "--secure-port=0",
            "--leader-elect=false", "--kube-api-qps=300", "--kube-api-burst=600"]


def issue_apiserver(again=False):
    names = [f"IP:{ip}" for ip in ("127.0.0.1", "::1", f"{NODE_NET}.1", f"{SERVICE_NET}.1")]
    names += ["DNS:" + name for name in ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
                                         "kubernetes.default.svc.cluster.local")]
    certificates.issue("apiserver", "/CN=kube-apiserver", names, again=again)


def issue_admin(again=False, algorithm="ec"):
    certificates.issue("admin", "/O=system:masters/CN=admin", algorithm=algorithm, again=again)


def write_kubeconfigs():
    """The admin's: with everything in it, and one that names the files, for clients that read them again."""
    certificates.kubeconfig(KUBECONFIG, "admin", server())
    certificates.kubeconfig(os.path.join(STATE, "files.kubeconfig"), "admin", server(), inline=False)


def user(name, subject, algorithm="ec"):
    """A kubeconfig STATE/NAME.kubeconfig of its own certificate."""
    certificates.issue(name, subject, algorithm=algorithm)
    certificates.kubeconfig(f"{STATE}/{name}.kubeconfig", name, server())


def up(controllers):
    """Starts what does not run; `controllers`: not only etcd and the API server."""
    programs.need(programs.CONTROL_PLANE if controllers else programs.API)
    os.makedirs(STATE, exist_ok=True)
    certificates.authority()
    issue_apiserver()
    certificates.issue("front-proxy", "/CN=front-proxy")  # for the API servers that it asks in turn
    issue_admin()
    write_kubeconfigs()
    processes.start("etcd", _etcd())
    processes.start("kube-apiserver", _apiserver())
    processes.wait_for(LONG, "ready API server", ready, "kube-apiserver")
    for name in ("default", "kube-system"):  # it makes them itself, once it is ready
        processes.wait_for(LONG, f"namespace {name}", lambda name=name: get(f"/api/v1/namespaces/{name}")[0] == 200, "kube-apiserver")
    if controllers:
        user("controller-manager", "/CN=system:kube-controller-manager")
        user("scheduler", "/CN=system:kube-scheduler")
        processes.start("kube-controller-manager", _controller_manager())
        processes.start("kube-scheduler", _scheduler())
        processes.wait_for(LONG, "service account",
                           lambda: get("/api/v1/namespaces/default/serviceaccounts/default")[0] == 200,
                           "kube-controller-manager")
    say(f"control plane at {server()}")


def move_to_bridge():
    """The nodes reach the API server by the bridge only: once it exists, the server listens there."""
    if on_bridge():
        return
    if IPV6:
        raise ClusterError("DSJ_CLUSTER_FAMILY=ipv6 has no nodes")
    os.makedirs(STATE, exist_ok=True)
    for name in PARTS[1:]:
        processes.forget(name)
    with open(BRIDGE_MARK, "w", encoding="ascii"):
        pass


def restart(name):
    """Kills it as a crash would and starts it again; returns when it serves."""
    name = SHORT.get(name, name)
    if name not in PARTS + ["coredns", "kwok"]:
        raise ClusterError(f"{name} is no process of the control plane: {' '.join(PARTS)} coredns kwok")
    processes.kill(name)
    processes.start_again(name)
    if name in PARTS[:2]:
        processes.wait_for(LONG, "ready API server", ready, name)


def rotate(name):
    """A new certificate in the old one's place. Returns when the running server shows it; the admin's is in the kubeconfigs."""
    if name == "apiserver":
        issue_apiserver(again=True)
        with open(certificates.file("apiserver.crt"), encoding="ascii") as file:
            wanted = ssl.PEM_cert_to_DER_cert(file.read())
        address = (_address(), ports()["api"])
        processes.wait_for(LONG, "new server certificate",
                           lambda: ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(address)) == wanted)
    elif name == "admin":
        issue_admin(again=True)
        write_kubeconfigs()
    else:
        raise ClusterError(f"rotate: {name} is neither apiserver nor admin")


def down():
    for name in reversed(PARTS):
        processes.forget(name)
