"""The cluster's programs, built from released Go modules, each once per set of versions, into CACHE/MODULE-KEY/."""
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
import zipfile

from settings import CACHE, HERE, KUBERNETES_MODULE, ClusterError, say

SOURCES = os.path.join(HERE, "programs")
KUBERNETES = "k8s.io/kubernetes/cmd/"
# Program: its module (a folder of programs/) and its package.
PROGRAMS = {
    "etcd": (KUBERNETES_MODULE, "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": (KUBERNETES_MODULE, KUBERNETES + "kube-apiserver"),
    "kube-controller-manager": (KUBERNETES_MODULE, KUBERNETES + "kube-controller-manager"),
    "kube-scheduler": (KUBERNETES_MODULE, KUBERNETES + "kube-scheduler"),
    "kube-proxy": (KUBERNETES_MODULE, KUBERNETES + "kube-proxy"),
    "kubelet": (KUBERNETES_MODULE, KUBERNETES + "kubelet"),
    "kubectl": (KUBERNETES_MODULE, KUBERNETES + "kubectl"),
    "coredns": ("addons", "./coredns"),
    "helm": ("addons", "helm.sh/helm/v3/cmd/helm"),
    "kwok": ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    "kueue": ("kueue", "sigs.k8s.io/kueue/cmd/kueue"),
    "vc-scheduler": ("volcano", "volcano.sh/volcano/cmd/scheduler"),
    "vc-controller-manager": ("volcano", "volcano.sh/volcano/cmd/controller-manager"),
    "vc-webhook-manager": ("volcano", "volcano.sh/volcano/cmd/webhook-manager"),
}
API = ["etcd", "kube-apiserver"]
CONTROL_PLANE = API + ["kube-controller-manager", "kube-scheduler", "kubectl"]
NODE = ["kubelet", "kube-proxy", "coredns"]
# What tests need together, by a name that `cluster.py build` knows.
GROUPS = {"api": API, "tools": ["kubectl", "helm"], "nodes": CONTROL_PLANE + ["helm"] + NODE,
          "queues": CONTROL_PLANE + ["helm", "kueue"],
          "gangs": CONTROL_PLANE + ["helm", "vc-scheduler", "vc-controller-manager", "vc-webhook-manager"]}

GO = (1, 26)  # what the modules ask for at least
# The toolchain as the Go module proxy hands it out: reachable wherever the modules are.
TOOLCHAIN = "go1.26.8.linux-amd64"
TOOLCHAIN_SHA256 = "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7"


def folder(module):
    digest = hashlib.sha256()
    for path, _, files in sorted(os.walk(os.path.join(SOURCES, module))):
        for name in sorted(files):
            if name in ("go.mod", "go.sum", "main.go"):
                with open(os.path.join(path, name), "rb") as file:
                    digest.update(file.read())
    return os.path.join(CACHE, f"{module}-{digest.hexdigest()[:12]}")


def path_of(program):
    return os.path.join(folder(PROGRAMS[program][0]), program)


def search_path():
    """For a shell's PATH."""
    return ":".join(folder(module) for module in (KUBERNETES_MODULE, "addons", "kwok", "kueue", "volcano"))


def _go_on_path():
    found = shutil.which("go")
    if not found:
        return None
    text = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"go(\d+)\.(\d+)", text)
    return found if version and (int(version[1]), int(version[2])) >= GO else None


def _fetched_go():
    root = os.path.join(CACHE, TOOLCHAIN)
    if not os.path.exists(os.path.join(root, "bin", "go")):
        proxies = re.split("[,|]", os.environ.get("GOPROXY", ""))
        proxy = next((p for p in proxies if p.startswith("http")), "https://proxy.golang.org").rstrip("/")
        url = f"{proxy}/golang.org/toolchain/@v/v0.0.1-{TOOLCHAIN}.zip"
        say(f"fetching {url}")
        with tempfile.TemporaryDirectory(dir=CACHE) as staging:
            archive = os.path.join(staging, "go.zip")
            with urllib.request.urlopen(url, timeout=120) as source, open(archive, "wb") as target:
                shutil.copyfileobj(source, target)
            with open(archive, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != TOOLCHAIN_SHA256:
                raise ClusterError(f"{url} has the checksum {digest}, expected {TOOLCHAIN_SHA256}")
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(staging)
            inner = os.path.join(staging, "golang.org", f"toolchain@v0.0.1-{TOOLCHAIN}")
            for part in ("bin", os.path.join("pkg", "tool")):  # a module's zip keeps no modes
                for path, _, files in os.walk(os.path.join(inner, part)):
                    for name in files:
                        os.chmod(os.path.join(path, name), 0o755)
            os.rename(inner, root)
    return os.path.join(root, "bin", "go")


def _ldflags(module):
    flags = "-s -w"
    if module == KUBERNETES_MODULE:  # the linker tells Kubernetes its own version
        with open(os.path.join(SOURCES, module, "go.mod"), encoding="utf-8") as file:
            version = re.search(r"k8s\.io/kubernetes (v(\d+)\.(\d+)\S*)", file.read())
        base = "k8s.io/component-base/version"
        flags += "".join(f" -X {base}.{name}={value}" for name, value in
                         (("gitVersion", version[1]), ("gitMajor", version[2]), ("gitMinor", version[3])))
    return flags


def _build_one(go, program):
    module, package = PROGRAMS[program]
    target = path_of(program)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    start = time.monotonic()
    say(f"building {program} (log: {target}.log)")
    environment = dict(os.environ, GOFLAGS="-mod=readonly", GOTOOLCHAIN="local", CGO_ENABLED="0")
    with open(target + ".log", "wb") as log:
        done = subprocess.run([go, "build", "-buildvcs=false", "-trimpath", "-ldflags", _ldflags(module), "-o",
                               target + ".part", package], cwd=os.path.join(SOURCES, module), env=environment,
                              stdout=log, stderr=log, check=False)
    if done.returncode != 0:
        with open(target + ".log", encoding="utf-8", errors="replace") as log:
            raise ClusterError(f"{program} does not build:\n{log.read()[-3000:]}")
    if program == "kwok":
        _keep_stages(go, os.path.dirname(target))
    if program == "kueue":
        _keep_manifests(go, program, "sigs.k8s.io/kueue", "config")
    if program == "vc-scheduler":
        _keep_manifests(go, program, "volcano.sh/volcano", "installer")
    os.replace(target + ".part", target)
    say(f"built {program} in {time.monotonic() - start:.0f} s")


def _source(go, module, path):
    """The folder of a module's released files."""
    return subprocess.run([go, "list", "-m", "-f", "{{.Dir}}", path], cwd=os.path.join(SOURCES, module),
                          capture_output=True, text=True, check=True).stdout.strip()


def kept(program):
    """What lies beside a program in the cache."""
    return path_of(program) + "-files"


def _keep_manifests(go, program, path, folder_of):
    """Resources, webhooks and services of Kueue and of Volcano come with their modules as files."""
    target = kept(program)
    shutil.rmtree(target, ignore_errors=True)
    # A module's files are read-only; a folder of copies must be one that can be deleted.
    shutil.copytree(os.path.join(_source(go, PROGRAMS[program][0], path), folder_of), target, copy_function=shutil.copyfile)
    for path, _, _ in os.walk(target):
        os.chmod(path, 0o755)


def _keep_stages(go, target):
    """What simulated nodes and pods do comes with kwok's module as files; one file of them is its configuration."""
    stages = os.path.join(_source(go, "kwok", "sigs.k8s.io/kwok"), "kustomize", "stage")
    files = [os.path.join(stages, "node", "fast", "node-initialize.yaml"),
             os.path.join(stages, "node", "heartbeat-with-lease", "node-heartbeat-with-lease.yaml")]
    pods = os.path.join(stages, "pod", "fast")
    files += sorted(os.path.join(pods, name) for name in os.listdir(pods) if name.startswith("pod-"))
    texts = []
    for name in files:
        with open(name, encoding="utf-8") as file:
            texts.append(file.read())
    with open(os.path.join(target, "kwok-stages.yaml"), "w", encoding="utf-8") as out:
        out.write("\n---\n".join(texts))


def _lend_priority(builder):
    """Somebody waits now: a build that was begun in the background goes on at this process's priority, as far as we may."""
    try:
        mine, group = os.getpriority(os.PRIO_PROCESS, 0), os.getpgid(int(builder))
        if os.getpriority(os.PRIO_PGRP, group) > mine:
            os.setpriority(os.PRIO_PGRP, group, mine)
        share = autogroup_nice("self")
        if autogroup_nice(builder) > share:  # a session's share, where the kernel gives each one
            with open(f"/proc/{int(builder)}/autogroup", "w", encoding="ascii") as file:
                file.write(str(share))
    except (ValueError, OSError):  # it has ended, or is not ours to speed up
        pass


def autogroup_nice(process):
    """How nice a process's session is as a whole; 0 where the kernel has no autogroups."""
    try:
        with open(f"/proc/{process}/autogroup", encoding="ascii") as file:
            return int(file.read().rsplit("nice", 1)[1])
    except (OSError, IndexError):
        return 0


def need(programs):
    """Builds those of `programs` that are not in the cache; waits for another process that builds them now."""
    os.makedirs(CACHE, exist_ok=True)
    for program in programs:
        if os.path.exists(path_of(program)):
            continue
        with open(os.path.join(CACHE, ".build.lock"), "a+", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                _lend_priority(lock.read())
                fcntl.flock(lock, fcntl.LOCK_EX)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            if not os.path.exists(path_of(program)):
                _build_one(_go_on_path() or _fetched_go(), program)
            lock.truncate(0)
