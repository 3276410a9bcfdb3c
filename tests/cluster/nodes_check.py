#!/usr/bin/env python3
"""Proves two real nodes: run by `cluster.py run --nodes 2 nodes_check.py REPORT`, which writes a GoogleTest report.

Pods run this machine's own programs over hostPath volumes in the pause image: no base image is needed."""
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report  # noqa: E402

LONG = 600  # seconds: bounds what an event decides
CLUSTER = os.environ["DSJ_CLUSTER"]
NAMESPACE = "nodes-check"


def kubectl(*words, given=None, check=True):
    done = subprocess.run(["kubectl", "-n", NAMESPACE, *words], input=given, capture_output=True, text=True, check=False,
                          timeout=LONG)
    if check and done.returncode != 0:
        raise AssertionError(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def cluster(*words):
    subprocess.run([CLUSTER, *words], check=True)


def eventually(condition, seconds=LONG):
    end = time.monotonic() + seconds
    while True:
        last = None
        try:
            if condition():
                return
        except (AssertionError, subprocess.TimeoutExpired) as error:
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {last or 'the condition is false'}")
        time.sleep(0.5)


def pod(name, node, command):
    mounts = {"usr": ("/usr", "/usr"), "bin": ("/usr/bin", "/bin"), "lib": ("/usr/lib", "/lib"),
              "lib64": ("/usr/lib64", "/lib64")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "check"}},
            "spec": {"hostname": name, "subdomain": "check", "nodeSelector": {"kubernetes.io/hostname": node},
                     "terminationGracePeriodSeconds": 1,
                     "containers": [{"name": "main", "image": "localhost/pause:1", "imagePullPolicy": "Never",
                                     "command": ["python3", "-c", command], "env": [{"name": "PATH", "value": "/bin"}],
                                     "volumeMounts": [{"name": n, "mountPath": m, "readOnly": True}
                                                      for n, (_, m) in mounts.items()]}],
                     "volumes": [{"name": n, "hostPath": {"path": h}} for n, (h, _) in mounts.items()]}}


SERVER = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.environ['HOSTNAME'].encode())
    def log_message(self, *_): pass
print('serving', flush=True)
http.server.ThreadingHTTPServer(('', 80), Handler).serve_forever()
"""


def inside(name, code):
    return kubectl("exec", name, "--", "python3", "-c", code)


def fetch(name, url):
    return inside(name, f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=30).read().decode())").strip()


def pods_run_on_two_nodes():
    subprocess.run(["kubectl", "create", "namespace", NAMESPACE], check=True, capture_output=True)
    eventually(lambda: kubectl("get", "serviceaccount", "default"))
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "check"},
               "spec": {"clusterIP": "None", "selector": {"app": "check"}, "publishNotReadyAddresses": True}}
    web = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
           "spec": {"selector": {"app": "check"}, "ports": [{"port": 80}]}}
    for thing in (service, web, pod("a", "n1", SERVER), pod("b", "n2", SERVER)):
        kubectl("apply", "-f", "-", given=json.dumps(thing))
    kubectl("wait", "pod", "a", "b", "--for", "condition=Ready", "--timeout", f"{LONG}s")
    assert kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}") == "n1 n2"


def a_pod_finds_the_other_by_name():
    eventually(lambda: fetch("a", "http://b.check/") == "b")
    eventually(lambda: fetch("b", "http://a.check.nodes-check.svc.cluster.local/") == "a")


def a_service_reaches_both():
    seen = set()
    eventually(lambda: seen.add(fetch("a", "http://web/")) or seen == {"a", "b"})


def logs_and_a_token_that_reads_nothing():
    assert "serving" in kubectl("logs", "a")
    code = """
import ssl, urllib.request, urllib.error
d = '/var/run/secrets/kubernetes.io/serviceaccount/'
request = urllib.request.Request('https://kubernetes.default.svc/api/v1/secrets',
                                 headers={'Authorization': 'Bearer ' + open(d + 'token').read()})
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=d + 'ca.crt'), timeout=5)
except urllib.error.HTTPError as error:
    print(error.code)
"""
    assert inside("a", code).strip() == "403"


def gpus_are_counted():
    cluster("gpus", "1", "8")
    eventually(lambda: kubectl("get", "node", "n1", "-o", "jsonpath={.status.allocatable.nvidia\\.com/gpu}") == "8")


def an_image_is_built_and_runs():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/Dockerfile", "w", encoding="ascii") as file:
            file.write("FROM scratch\nCOPY word /word\n")
        with open(f"{folder}/word", "w", encoding="ascii") as file:
            file.write("built")
        cluster("image", "check:1", folder)
    thing = pod("c", "n2", "print(open('/word').read())")
    thing["spec"]["containers"][0]["image"] = "localhost/check:1"
    thing["spec"]["restartPolicy"] = "Never"
    kubectl("apply", "-f", "-", given=json.dumps(thing))
    eventually(lambda: kubectl("logs", "c").strip() == "built")


def a_crashed_node_is_noticed_and_comes_back():
    cluster("crash", "2")
    ready = lambda: kubectl("get", "node", "n2", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}")  # noqa: E731
    eventually(lambda: ready() == "Unknown")
    assert fetch("a", "http://a.check/") == "a"
    cluster("up", "--nodes", "2")
    eventually(lambda: ready() == "True")


def a_restarted_control_plane_serves():
    for name in ("etcd", "apiserver", "controller-manager", "scheduler", "coredns"):
        cluster("restart", name)
    kubectl("apply", "-f", "-", given=json.dumps(pod("d", "n1", SERVER)))
    kubectl("wait", "pod", "d", "--for", "condition=Ready", "--timeout", f"{LONG}s")
    eventually(lambda: fetch("d", "http://a.check/") == "a")


CASES = [pods_run_on_two_nodes, a_pod_finds_the_other_by_name, a_service_reaches_both, logs_and_a_token_that_reads_nothing,
         gpus_are_counted, an_image_is_built_and_runs, a_crashed_node_is_noticed_and_comes_back,
         a_restarted_control_plane_serves]


def main():
    report = Report("ClusterNodes", sys.argv[1])
    for case in CASES:
        report.run(case.__name__, case)
    return report.write()


sys.exit(main())
