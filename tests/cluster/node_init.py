"""The first process of node I, in new network, mount and pid namespaces: its own disk, its network, then containerd, kubelet
and kube-proxy, each started again when it ends. It reaps the orphans of the node."""
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import programs  # noqa: E402
from settings import LOGS, NODE_NET, NODES_MAX, POD_NET, STATE  # noqa: E402

NUMBER = int(sys.argv[1])
FOLDER = f"{STATE}/n{NUMBER}"
# The node's own disk lies behind these; all else is this machine's file system.
OWN = ("/run/containerd", "/run/netns", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/cni", "/var/log/pods",
       "/var/log/containers")
EMPTY_AT_BOOT = ("/run/netns", "/run/containerd", "/var/lib/cni/networks")


def run(*words):
    subprocess.run(words, check=True)


def mount_disk():
    for path in OWN:
        os.makedirs(path, exist_ok=True)
        os.makedirs(f"{FOLDER}/disk{path}", exist_ok=True)
        run("mount", "--bind", f"{FOLDER}/disk{path}", path)
    run("mount", "--make-rshared", "/")
    for path in EMPTY_AT_BOOT:
        for name in os.listdir(path) if os.path.isdir(path) else []:
            inner = os.path.join(path, name)
            if os.path.isdir(inner) and not os.path.islink(inner):
                shutil.rmtree(inner)
            else:
                os.remove(inner)


def join_network():
    with open(f"{FOLDER}/unshared", "w", encoding="ascii"):
        pass
    while not os.path.isdir("/sys/class/net") or subprocess.run(
            ["ip", "link", "show", "eth0"], capture_output=True, check=False).returncode != 0:
        time.sleep(0.05)
    run("ip", "link", "set", "lo", "up")
    run("ip", "addr", "add", f"{NODE_NET}.{10 + NUMBER}/24", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "route", "add", "default", "via", f"{NODE_NET}.1")
    for other in range(1, NODES_MAX + 1):
        if other != NUMBER:
            run("ip", "route", "add", f"{POD_NET}.{other}.0/24", "via", f"{NODE_NET}.{10 + other}")
    # The second: without it a pod that reaches its neighbour through a service gets no answer.
    for setting in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
        try:
            with open(f"/proc/sys/net/{setting}", "w", encoding="ascii") as file:
                file.write("1")
        except OSError as error:
            print(f"{setting}: {error}", file=sys.stderr, flush=True)


COMMANDS = {
    "containerd": ["containerd", "--config", f"{FOLDER}/containerd.toml"],
    "kubelet": [programs.path_of("kubelet"), "--config", f"{FOLDER}/kubelet.yaml", "--kubeconfig",
                f"{STATE}/n{NUMBER}.kubeconfig", "--hostname-override", f"n{NUMBER}", "--node-ip",
                f"{NODE_NET}.{10 + NUMBER}"],
    "kube-proxy": [programs.path_of("kube-proxy"), "--config", f"{FOLDER}/kube-proxy.yaml"],
}


def start(name):
    """In a child by fork, so that os.wait() below sees it end like every other."""
    pid = os.fork()
    if pid:
        return pid
    log = os.open(f"{LOGS}/n{NUMBER}-{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.setsid()
    os.execvp(COMMANDS[name][0], COMMANDS[name])


def main():
    os.umask(0o022)  # containerd unpacks images under it
    mount_disk()
    join_network()
    os.environ["PATH"] += ":/usr/sbin"
    running = {start("containerd"): "containerd"}
    while not os.path.exists(f"{FOLDER}/containerd.sock"):
        time.sleep(0.05)
    for name in ("kubelet", "kube-proxy"):
        running[start(name)] = name
    while True:
        pid, _ = os.wait()
        if pid in running:
            name = running.pop(pid)
            time.sleep(1)
            running[start(name)] = name


main()
