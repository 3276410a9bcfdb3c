"""Installing what comes as manifests of its own, with webhooks that run as processes of this machine."""
import json
import os
import subprocess

import certificates
import control_plane
import processes
import programs
from settings import LONG, STATE, ClusterError

# Kinds of an installation without what pods would be made from.
KINDS = ("Namespace", "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService",
         "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def kubectl(*words, given=None):
    done = subprocess.run([programs.path_of("kubectl"), *words], input=given, capture_output=True, check=False,
                          env=dict(os.environ, KUBECONFIG=os.path.join(STATE, "admin.kubeconfig")))
    if done.returncode != 0:
        raise ClusterError(f"kubectl {words[0]}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def objects(text, kinds=KINDS):
    """Those of some kinds in a stream of YAML documents (bytes)."""
    wanted = [part for part in text.split(b"\n---\n")
              if any(f"\nkind: {kind}\n".encode() in b"\n" + part for kind in kinds)]
    made = kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", "-", given=b"\n---\n".join(wanted))
    things, rest = [], made.decode().strip()
    while rest:  # one object behind the other
        thing, end = json.JSONDecoder().raw_decode(rest)
        things.append(thing)
        rest = rest[end:].strip()
    return things


def by_url(client, port):
    """A webhook's client configuration, for a process of this machine instead of a Service."""
    service = client.pop("service")
    client["url"] = f"https://127.0.0.1:{port}{service.get('path', '')}"
    client["caBundle"] = certificates.data("ca.crt")


def install(things):
    """Returns when the API server lists its kinds."""
    for first in (True, False):  # what the others stand in, or are served by, comes first
        _apply([thing for thing in things if (thing["kind"] in ("Namespace", "CustomResourceDefinition")) == first])
    crds = [thing for thing in things if thing["kind"] == "CustomResourceDefinition"]
    processes.wait_for(LONG, "list of the new kinds", lambda: all(_lists(crd) for crd in crds))


def _apply(things):
    kubectl("apply", "--server-side", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": things}).encode())


def _lists(crd):
    """The API server serves every version of it, and says so."""
    answers = [control_plane.get(f"/apis/{crd['spec']['group']}/{version['name']}")
               for version in crd["spec"]["versions"] if version["served"]]
    return all(status == 200 and crd["spec"]["names"]["plural"] in {resource["name"] for resource in json.loads(body)["resources"]}
               for status, body in answers)
