"""Real nodes n1 to n9: each a process tree in network, mount and pid namespaces of its own, joined to a bridge of this
machine. Ending its first process ends all of it, as a power failure does. node_init.py is that first process."""
import glob
import os
import shutil
import subprocess

import control_plane
import images
import processes
import programs
from settings import BRIDGE, CGROUP, HERE, LONG, NODE_NET, NODES_MAX, POD_NET, SERVICE_NET, STATE, ClusterError, say

TOOLS = {"ip": "iproute2", "containerd": "containerd", "runc": "runc", "ctr": "containerd", "nft": "nftables",
         "gcc": "gcc", "unshare": "util-linux"}
V1 = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd", "hugetlb")
ROOT = "/sys/fs/cgroup"


def _run(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise ClusterError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def render(name, target, number=""):
    with open(os.path.join(HERE, "conf", name), encoding="utf-8") as source:
        text = source.read()
    for word, value in (("STATE", STATE), ("NODE_NET", NODE_NET), ("POD_NET", POD_NET), ("CGROUP", CGROUP), ("I", number)):
        text = text.replace(f"@{word}@", str(value))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as out:
        out.write(text)


def check_machine():
    """Says all that is missing at once."""
    if os.geteuid() != 0:
        raise ClusterError("real nodes need root (up --api does not)")
    path = os.environ["PATH"] + ":/usr/sbin"
    missing = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool, path=path)})
    if not os.path.isdir("/usr/lib/cni"):
        missing.append("containernetworking-plugins")
    if missing:
        raise ClusterError(f"missing; apt-get install -y --no-install-recommends {' '.join(missing)}")
    if not cgroup_v2() and not os.path.isdir(f"{ROOT}/memory"):
        raise ClusterError(f"{ROOT} has neither cgroup v2 nor the hierarchies of v1")
    if not os.access(ROOT if cgroup_v2() else f"{ROOT}/memory", os.W_OK):
        raise ClusterError(f"{ROOT} cannot be written: a container that may not make control groups")
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "ip", "link", "add", "dsjtry", "type",
                            "bridge"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise ClusterError(f"no namespaces with a bridge of their own here: {tried.stderr.strip()}")


def cgroup_v2():
    return os.path.exists(f"{ROOT}/cgroup.controllers")


def _make_cgroups(number):
    """The kubelet wants the root of its pods' groups to be there, with every controller in it."""
    if cgroup_v2():
        path = ROOT
        for part in (CGROUP, f"n{number}"):
            with open(f"{path}/cgroup.controllers", encoding="ascii") as file:
                wanted = [c for c in file.read().split() if c in ("cpu", "cpuset", "memory", "pids", "io", "hugetlb")]
            with open(f"{path}/cgroup.subtree_control", "w", encoding="ascii") as file:
                file.write(" ".join("+" + c for c in wanted))
            path = f"{path}/{part}"
            os.makedirs(path, exist_ok=True)
        return
    for controller in V1:
        if os.path.isdir(f"{ROOT}/{controller}"):
            os.makedirs(f"{ROOT}/{controller}/{CGROUP}/n{number}", exist_ok=True)
    for path in (f"{ROOT}/cpuset/{CGROUP}", f"{ROOT}/cpuset/{CGROUP}/n{number}"):  # a new one is empty
        for value in ("cpus", "mems"):
            with open(f"{ROOT}/cpuset/cpuset.{value}", encoding="ascii") as all_of_them:
                with open(f"{path}/cpuset.{value}", "w", encoding="ascii") as file:
                    file.write(all_of_them.read())


def make_bridge():
    if not os.path.isdir(f"/sys/class/net/{BRIDGE}"):
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "addr", "replace", f"{NODE_NET}.1/24", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")


def _first_process(number):
    """The pid, seen from here, of the node's first process."""
    outer = processes.pid(f"n{number}")
    if not outer:
        return None
    with open(f"/proc/{outer}/task/{outer}/children", encoding="ascii") as file:
        children = file.read().split()
    return int(children[0]) if children else None


def _socket(number):
    return f"{STATE}/n{number}/containerd.sock"


def _load(number, archive):
    _run("ctr", "-a", _socket(number), "-n", "k8s.io", "images", "import", archive)


def load(archive):
    place = images.keep(archive)
    for number in range(1, NODES_MAX + 1):
        if processes.pid(f"n{number}"):
            _load(number, place)


def _boot(number):
    name, folder = f"n{number}", f"{STATE}/n{number}"
    if processes.pid(name):
        return
    os.makedirs(folder, exist_ok=True)
    mark = f"{folder}/unshared"
    if os.path.exists(mark):
        os.remove(mark)
    _make_cgroups(number)
    control_plane.user(name, f"/O=system:nodes/CN=system:node:{name}")
    render("cni.conflist", f"{folder}/cni/10-pods.conflist", number)
    for file in ("containerd.toml", "kubelet.yaml", "kube-proxy.yaml"):
        render(file, f"{folder}/{file}", number)
    processes.start(name, ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "python3",
                           f"{HERE}/node_init.py", str(number)])
    processes.wait_for(LONG, f"namespaces of {name}", lambda: os.path.exists(mark), name)
    link = f"{BRIDGE}n{number}"
    _run("ip", "link", "del", link, check=False)
    _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(_first_process(number)))
    _run("ip", "link", "set", link, "master", BRIDGE, "up")
    _run("ip", "route", "replace", f"{POD_NET}.{number}.0/24", "via", f"{NODE_NET}.{10 + number}")
    processes.wait_for(LONG, f"containerd of {name}", lambda: subprocess.run(
        ["ctr", "-a", _socket(number), "version"], capture_output=True, check=False).returncode == 0, name)
    for archive in images.kept():
        _load(number, archive)


def _ready(number):
    status, body = control_plane.get(f"/api/v1/nodes/n{number}")
    return status == 200 and '"type":"Ready","status":"True"' in body.replace(" ", "")


def up(count):
    programs.need(programs.NODE)
    make_bridge()
    control_plane.user("proxy", "/CN=system:kube-proxy")
    render("Corefile", f"{STATE}/Corefile")
    processes.start("coredns", [programs.path_of("coredns"), "-conf", f"{STATE}/Corefile"])
    images.pause()
    for number in range(1, count + 1):
        _boot(number)
    for number in range(1, count + 1):
        processes.wait_for(LONG, f"ready node n{number}", lambda number=number: _ready(number), f"n{number}")
    if count:
        _run("ip", "route", "replace", f"{SERVICE_NET}.0/16", "via", f"{NODE_NET}.11")  # this machine reaches services, too
    say(f"{count} real nodes")


def crash(number):
    first = _first_process(number)
    processes.kill(f"n{number}")
    if first:
        processes.wait_for(LONG, f"end of n{number}", lambda: not os.path.exists(f"/proc/{first}/ns/pid")
                           or not processes.running(first))


def gpus(number, count):
    """Counted and scheduled by; there is no device."""
    control_plane.merge_patch(f"/api/v1/nodes/n{number}/status", {"status": {"capacity": {"nvidia.com/gpu": str(count)}}})


def down():
    if not control_plane.on_bridge():  # the bridge of that number is another cluster's
        return
    for number in range(1, NODES_MAX + 1):
        if processes.pid(f"n{number}"):
            crash(number)
        processes.forget(f"n{number}")
        if os.path.isdir(f"/sys/class/net/{BRIDGE}n{number}"):
            _run("ip", "link", "del", f"{BRIDGE}n{number}", check=False)
    processes.forget("coredns")
    if os.path.isdir(f"/sys/class/net/{BRIDGE}"):
        _run("ip", "link", "del", BRIDGE, check=False)
    groups = glob.glob(f"{ROOT}/*/{CGROUP}") + glob.glob(f"{ROOT}/{CGROUP}")
    processes.wait_for(LONG, "end of the nodes' processes", lambda: all(map(_remove_tree, groups)))


def _remove_tree(path):
    """Of control groups, from the leaves up; false while a process is in one."""
    for folder, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            return not os.path.isdir(path)
    return True
