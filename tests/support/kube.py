"""kubectl, helm and waiting, as the checks use them. Nothing here knows a DeepSpeedJob."""
import contextlib
import json
import os
import random
import socket
import subprocess
import time

from cases import expect


LONG = 600  # seconds: bounds what an event or a program's end decides. A busy machine is slow, and time is no assertion.


def free_port():
    """For a program that is started next. Below the range that connections take their own ports from, and beside that of the
    clusters (control_plane.py), so that it is still free then."""
    while True:
        port = random.randrange(10000, 15000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def run(*words, given=None, check=True, timeout=LONG, env=None):
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False, timeout=timeout, env=env)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done


def kubectl(*words, thing=None, check=True, config=None):
    """thing: an object for its standard input; config: another kubeconfig than the environment's."""
    return run("kubectl", *words, given=json.dumps(thing) if thing is not None else None, check=check,
               env=dict(os.environ, KUBECONFIG=config) if config else None)


def get(*words):
    """The object, or the items of a list; None when it is not there or the server is away."""
    done = kubectl("get", *words, "-o", "json", check=False)
    if done.returncode != 0:
        return None
    found = json.loads(done.stdout)
    return found.get("items", found)


def patch(kind, name, change, ns, *words):
    kubectl("-n", ns, "patch", kind, name, "--type", "merge", "-p", json.dumps(change), *words)


def eventually(condition, what, seconds=LONG):
    """What condition() returns once it is true."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        expect(time.monotonic() < end, lambda: f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.2)


def crds_served():
    """Waits until objects of every CRD of the server can be made: its list of resources has their kinds. That is a moment after
    the condition Established; and kubectl's own wait fails at a CRD so new that its conditions are null."""
    names = set(kubectl("get", "crd", "-o", "jsonpath={.items[*].metadata.name}").stdout.split())
    expect(names, "no CRD is installed")

    def missing():
        return names - set(kubectl("api-resources", "--cached=false", "-o", "name", check=False).stdout.split())
    eventually(lambda: not missing(), lambda: f"the API server does not list {missing()}")


def condition_of(thing, kind):
    """A condition of a status; {} when it has none of that type."""
    conditions = ((thing or {}).get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == kind), {})


def holds(thing, kind):
    return condition_of(thing, kind).get("status") == "True"
