#!/usr/bin/env python3
"""Generates the pod template's schema in crds/ from an API server's own description of a pod.

Usage: pod_template_schema.py [--check] [OPENAPI]. OPENAPI: a file with the output of `kubectl get --raw /openapi/v2`, which
is otherwise run. Rewrites the part between the marks of each file in crds/, or with --check exits 1 if that would change
something. A server newer than MADE_FROM may have more fields; fields that both have must be the same. The schema is
structural and preserves unknown fields: an API server may be newer, and a dry run of worker 0's pod shows which fields it
supports (operator/act/trial.h).

Left out: fields that a template cannot have (ephemeralContainers, metadata except labels and annotations), and defaults,
which would change the meaning of existing specs. spec.containers may be missing: the operator adds the container "worker".

Lists have the same keys as in a pod (containers by name, ports by containerPort and protocol), so that two managers of
server-side apply may own entries of one list. A list's key must be required or have a default, so defaults of keys are kept.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MARKS = re.compile(r"^( *)# pod template: made by scripts/pod_template_schema\.py\n(.*?)^ *# pod template: end\n", re.DOTALL | re.MULTILINE)
POD = "io.k8s.api.core.v1.PodSpec"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
EITHER = ("io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString")
# Descriptions of fields that the operator sets or uses, by path in the template.
OWN = {
    "metadata": "Labels and annotations of the pods.",
    "metadata.labels": "Labels of the pods. Labels set by the operator take precedence.",
    "metadata.annotations": "Annotations of the pods. Annotations set by the operator take precedence.",
    "spec": "As pod.spec. The operator adds to it what the agents need.",
    "spec.hostname": "Set by the operator.",
    "spec.subdomain": "Set by the operator.",
    "spec.nodeName": "Set by the scheduler.",
    "spec.restartPolicy": "Always Never: the job restarts its ranks.",
    "spec.terminationGracePeriodSeconds": "At least the save timeout (spec.checkpoint.onSuspend) plus 30 s.",
    "spec.automountServiceAccountToken": "By default only worker 0 gets the token; with true every worker does.",
    "spec.containers": "The container \"worker\" runs the ranks. It is added if no container is named.",
    "spec.containers[].command": "Only with launcher Command: the program of each rank.",
    "spec.containers[].args": "Only with launcher Command: the arguments of command.",
    "spec.containers[].image": "The container \"worker\" uses the operator's worker image by default.",
}
# How server-side apply merges. A list without these is atomic.
MERGES = ("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type")
# Defaults of ports and imagePullSecrets in k8s.io/api/core/v1 (+default), which OpenAPI 2 omits.
KEY_DEFAULTS = {"protocol": "TCP", "name": ""}
LEFT_OUT = {"spec.ephemeralContainers"}
MADE_FROM = (1, 34)  # the Kubernetes version of the pods in crds/


def described(path):
    """One sentence per field of a pod and of its containers. Fields deeper inside have none."""
    words = path.split(".")
    deep = len(words) > (3 if "ontainers[]" in path else 2)
    return {} if deep and path not in OWN else {"description": OWN.get(path) or "As pod." + path.replace("[]", "") + "."}


def metadata(path):
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    return {"type": "object", "properties": {name: dict(texts, **described(f"{path}.{name}")) for name in ("annotations", "labels")}}


def structural(schema, definitions, path):
    """The schema with references resolved. Objects without properties preserve all fields."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        if name in EITHER:
            return {"x-kubernetes-int-or-string": True}
        if name == META:
            return metadata(path)
        return structural(definitions[name], definitions, path)
    made = {"type": schema["type"]}
    if "format" in schema:
        made["format"] = schema["format"]
    made.update((name, schema[name]) for name in MERGES if name in schema and (name, schema[name]) != ("x-kubernetes-list-type", "atomic"))
    if "items" in schema:
        made["items"] = structural(schema["items"], definitions, path + "[]")
        give_defaults(made)
    elif "additionalProperties" in schema:
        made["additionalProperties"] = structural(schema["additionalProperties"], definitions, path + "{}")
    elif "properties" in schema:
        needed = [name for name in schema.get("required", []) if (path, name) != ("spec", "containers")]
        if needed:
            made["required"] = needed
        made["x-kubernetes-preserve-unknown-fields"] = True
        made["properties"] = {}
        for name, one in sorted(schema["properties"].items()):
            at = f"{path}.{name}"
            if at not in LEFT_OUT:
                made["properties"][name] = dict(structural(one, definitions, at), **described(at))
    elif schema["type"] == "object":
        made["x-kubernetes-preserve-unknown-fields"] = True
    return made


def give_defaults(made):
    """Gives each key of a map-like list the pod's own default unless it is required."""
    for key in made.get("x-kubernetes-list-map-keys", []):
        if key not in made["items"].get("required", []):
            made["items"]["properties"][key]["default"] = KEY_DEFAULTS[key]


def template_schema(openapi):
    definitions = openapi["definitions"]
    return {"metadata": dict(metadata("metadata"), **described("metadata")),
            "spec": dict(structural(definitions[POD], definitions, "spec"), **described("spec"))}


def flow(value):
    """A value on one line of YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {flow(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if re.fullmatch(r"[a-z0-9]+", value) else json.dumps(value)


def wrapped(text, indent):
    """Lines of at most 120 columns, broken between two entries."""
    lines, line = [], indent
    for word in re.split(r"(?<=[,{\[]) ?(?=[^,]*[:{\]}])", text):
        if len(line) + len(word) + 1 > 120 and line.strip():
            lines.append(line.rstrip())
            line = indent + "  "
        line += word + (" " if word.endswith(",") else "")
    return lines + [line.rstrip()]


def block(properties, indent, depth=2):
    """Lines of YAML. Each field of a template, its spec and its metadata begins a new line."""
    lines = []
    for name, schema in properties.items():
        if depth > 1 and len(flow(schema)) > 1000:
            lines.append(f"{indent}{name}:")
            lines.extend(f"{indent}  {key}: {flow(value)}" for key, value in schema.items() if key != "properties")
            lines.append(f"{indent}  properties:")
            lines.extend(block(schema["properties"], indent + "    ", depth - 1))
        else:
            lines.extend(wrapped(f"{name}: {flow(schema)}", indent))
    return lines


def rewritten(text, schema):
    def region(found):
        indent = found.group(1)
        body = "\n".join(block(schema, indent)) + "\n"
        return f"{indent}# pod template: made by scripts/pod_template_schema.py\n{body}{indent}# pod template: end\n"
    return MARKS.sub(region, text)


def version_of(openapi):
    return tuple(int(number) for number in re.search(r"(\d+)\.(\d+)", openapi["info"]["version"]).groups())


def templates_of(schema):
    """The properties of every pod template in a schema."""
    properties = schema.get("properties", {})
    if "containers" in properties.get("spec", {}).get("properties", {}):
        yield properties
    for one in properties.values():
        yield from templates_of(one)


def differences(ours, theirs, path=""):
    """Fields that both sides describe differently, and fields that only ours has."""
    for name in ("properties", "items", "additionalProperties"):
        if name not in ours:
            continue
        if name != "properties":
            yield from differences(ours[name], theirs.get(name, {}), path + "[]")
            continue
        for field, one in ours[name].items():
            if field not in theirs.get(name, {}):
                yield f"{path}.{field} is gone"
            else:
                yield from differences(one, theirs[name][field], f"{path}.{field}")
    for name in sorted({*ours, *theirs} - {"properties", "items", "additionalProperties"}):
        if ours.get(name) != theirs.get(name):
            yield f"{path} {name}: {ours.get(name)} is {theirs.get(name)}"


def check_newer(schema):
    """For a server newer than the one that crds/ was made from."""
    problems, seen = [], 0
    for path in sorted(glob.glob(os.path.join(ROOT, "crds/*.yaml"))):
        text = subprocess.run(["kubectl", "create", "--dry-run=client", "-o", "json", "-f", path], capture_output=True, text=True,
                              check=True).stdout
        for version in json.loads(text)["spec"]["versions"]:
            for template in templates_of(version["schema"]["openAPIV3Schema"]):
                seen += 1
                problems += [f"{os.path.basename(path)}: {one}" for one in differences({"properties": template}, {"properties": schema})]
    if seen == 0:
        problems = ["crds/ has no pod template"]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def main(words):
    check = "--check" in words
    files = [word for word in words if word != "--check"]
    if files:
        with open(files[0], encoding="utf-8") as file:
            openapi = json.load(file)
    else:
        openapi = json.loads(subprocess.run(["kubectl", "get", "--raw", "/openapi/v2"], capture_output=True, text=True, check=True).stdout)
    schema = template_schema(openapi)
    if check and version_of(openapi) > MADE_FROM:
        return check_newer(schema)
    stale = []
    for path in sorted(glob.glob(os.path.join(ROOT, "crds/*.yaml"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        new = rewritten(text, schema)
        if new == text:
            continue
        stale.append(os.path.basename(path))
        if not check:
            with open(path, "w", encoding="utf-8") as file:
                file.write(new)
            shutil.copy(path, os.path.join(ROOT, "charts/deepspeedjob/files/crds"))
    if check and stale:
        print(f"{', '.join(stale)}: not what this API server's pods are like: scripts/pod_template_schema.py writes it anew", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
