#!/usr/bin/env python3
"""A real Kubernetes cluster on this machine, for tests: no container runtime of others, no registry, no cloud.

  cluster.py up [--api | --nodes N] [--simulated M] [--kueue] [--volcano]  start it, or what is missing of it: the control plane, N real nodes
                                   (0; at most 9; they need root) and M simulated ones, where pods run in name only.
                                   --api: etcd and the API server only. --kueue: Kueue beside it; --volcano: Volcano beside it;
                                   both without real nodes
  cluster.py down                  end every process and remove its state
  cluster.py status                what runs, with its memory
  cluster.py env                   shell words: eval "$(cluster.py env)" sets KUBECONFIG, DSJ_CLUSTER_STATE and PATH
  cluster.py build [NAME...]       build programs into the cache. NAME: a program; api (what --api needs; the default); tools
                                   (kubectl and helm); nodes (what --nodes needs, if this machine can have nodes);
                                   queues and gangs (what --kueue and --volcano need, if these can be had)
  cluster.py restart NAME          crash a process of the control plane and start it again
  cluster.py stop NAME             crash it; `restart` or `up` brings it back
  cluster.py crash I               node I loses its power; the next `up` boots it again, its disk kept
  cluster.py image NAME DIR        build DIR/Dockerfile as localhost/NAME and load it into the nodes
  cluster.py load ARCHIVE...       load image archives into the nodes, present and to come
  cluster.py gpus I COUNT          node I offers COUNT nvidia.com/gpu
  cluster.py rotate apiserver|admin  issue that certificate anew
  cluster.py user NAME GROUP ec|rsa  STATE/NAME.kubeconfig of a new user with a certificate of that kind
  cluster.py run [OPTIONS of up] COMMAND...  up in a state of its own, COMMAND with the environment, down; COMMAND's exit code

Environment: settings.py. README.md has the rest.
"""
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import control_plane  # noqa: E402
import images  # noqa: E402
import kueue  # noqa: E402
import nodes  # noqa: E402
import processes  # noqa: E402
import programs  # noqa: E402
import simulated  # noqa: E402
import volcano  # noqa: E402
from settings import KUBECONFIG, NODES_MAX, STATE, ClusterError, say  # noqa: E402


def take_options(words):
    """({"--nodes": 2, ...}, the words behind)"""
    options = {}
    while words and words[0] in ("--api", "--nodes", "--simulated", "--kueue", "--volcano"):
        counted = words[0] in ("--nodes", "--simulated")
        if counted and (len(words) < 2 or not words[1].isdigit()):
            raise ClusterError(f"{words[0]} needs a number")
        options[words[0]] = int(words[1]) if counted else 1
        words = words[2 if counted else 1:]
    return options, words


def up(words):
    options, rest = take_options(words)
    count, fakes, api_only = options.get("--nodes", 0), options.get("--simulated", 0), "--api" in options
    queues, gangs = "--kueue" in options, "--volcano" in options
    if rest or count > NODES_MAX or (api_only and len(options) > 1) or ((queues or gangs) and count):
        raise ClusterError(f"up: cannot do {' '.join(words)}")
    if count:
        nodes.check_machine()
        control_plane.move_to_bridge()
        nodes.make_bridge()
    if queues:
        kueue.check_machine()
        os.environ["APISERVER_FLAGS"] = os.environ.get("APISERVER_FLAGS", "") + " " + kueue.APISERVER_FLAG
    control_plane.up(controllers=not api_only)
    if queues:
        kueue.up()
    if gangs:
        volcano.up()
    if count:
        nodes.up(count)
    if fakes:
        simulated.up(fakes, tainted=count > 0)


def down(_words=()):
    nodes.down()
    simulated.down()
    kueue.down()
    volcano.down()
    control_plane.down()
    shutil.rmtree(STATE, ignore_errors=True)
    say("down")


def status(_words):
    for name in processes.names():
        number = processes.pid(name)
        print(f"{name:<26} " + (f"pid {number:<8} {processes.resident_kib(number) // 1024} MiB" if number else "ended"))


def environment():
    # What kubectl and helm remember of a server is filed by its address, which an earlier cluster may have had.
    return {"KUBECONFIG": KUBECONFIG, "KUBECACHEDIR": os.path.join(STATE, "kube-cache"), "DSJ_CLUSTER_STATE": STATE,
            "DSJ_CLUSTER": os.path.abspath(__file__),
            "PATH": programs.search_path() + ":" + os.environ.get("PATH", "")}


def env(_words):
    for name, value in environment().items():
        print(f"export {name}='{value}'")


def build(words):
    known = [*programs.PROGRAMS, *programs.GROUPS]
    unknown = [word for word in words if word not in known]
    if unknown:
        raise ClusterError(f"build: {unknown} not among {' '.join(known)}")
    for word in words or ["api"]:
        if word == "nodes":
            try:
                nodes.check_machine()
            except ClusterError as problem:
                say(f"no programs of real nodes are built: {problem}")
                continue
        try:
            programs.need(programs.GROUPS.get(word, [word]))
        except ClusterError as problem:
            if word not in ("queues", "gangs"):
                raise
            say(f"no programs of {word}: {problem}")  # their check says so, too


def run(words):
    command = take_options(words)[1]
    how = words[:len(words) - len(command)]
    down()
    try:
        up(how)
        return subprocess.run(command, env=dict(os.environ, **environment()), check=False).returncode
    finally:
        if os.environ.get("DSJ_CLUSTER_KEEP"):
            say(f"kept: {STATE}")
        else:
            down()


def load(words):
    for archive in words:
        nodes.load(archive)


def stop(words):
    processes.kill(control_plane.SHORT.get(words[0], words[0]))


def user(words):
    name, group, algorithm = words
    control_plane.user(name, f"/O={group}/CN={name}", algorithm)


COMMANDS = {"up": up, "down": down, "status": status, "env": env, "build": build, "run": run, "stop": stop, "user": user,
            "load": load, "image": lambda words: nodes.load(images.build(*words)),
            "crash": lambda words: nodes.crash(int(words[0])), "gpus": lambda words: nodes.gpus(*words),
            "restart": lambda words: control_plane.restart(words[0]),
            "rotate": lambda words: control_plane.rotate(words[0])}


def main():
    words = sys.argv[1:]
    wanted = {"restart": 2, "stop": 2, "rotate": 2, "user": 4, "crash": 2, "image": 3, "gpus": 3}
    if not words or words[0] not in COMMANDS or len(words) != wanted.get(words[0], len(words)):
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # `run` takes its cluster down
    try:
        return COMMANDS[words[0]](words[1:]) or 0
    except ClusterError as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
