#!/usr/bin/env python3
"""Each job of configs/cluster on a real API server with the real CRD: taken by a server-side dry run and by an apply, kept
field by field as it is written, accepted by the operator, and its pods made as the API server wants pods. Then kubectl's
plugin shows them.

Usage: cluster.py run --api samples_cluster_check.py REPOSITORY BIN GTEST_REPORT. Exit 1 when one is not.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report  # noqa: E402
from kube import LONG, crds_served, run  # noqa: E402


def kubectl(*words):
    """With this build's plugin on PATH, once main() has put it there."""
    return run("kubectl", *words, check=False)


def missing(wanted, found, path=""):
    """Paths of `wanted` that `found` has not, or has otherwise."""
    if isinstance(wanted, dict):
        if not isinstance(found, dict):
            return [path]
        return [bad for key, value in wanted.items() for bad in missing(value, found.get(key), f"{path}.{key}")]
    return [] if wanted == found else [f"{path}: {wanted!r} became {found!r}"]


def as_json(path):
    """The file as kubectl reads it, nothing asked of the server."""
    return json.loads(kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-f", path).stdout)


class Samples:
    def __init__(self, root, binaries):
        self.folder = os.path.join(root, "configs", "cluster")
        self.names = sorted(name[:-5] for name in os.listdir(self.folder) if name.endswith(".yaml"))
        self.root, self.operator = root, os.path.join(binaries, "dsj-operator")
        self.log = tempfile.NamedTemporaryFile("w+", prefix="dsj-samples-")
        self.process = None

    def start(self):
        for what in (os.path.join(self.root, "crds"), os.path.join(self.folder, "templates")):
            done = kubectl("apply", "--server-side", "-f", what)
            assert done.returncode == 0, done.stderr
            crds_served()
        self.process = subprocess.Popen([self.operator, "--no-leader-election", "--health-address", "", "--kueue=true"],
                                        stdout=self.log, stderr=self.log)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(LONG)

    def check(self, name):
        path = os.path.join(self.folder, name + ".yaml")
        wanted = as_json(path)
        for how in (["--dry-run=server"], []):
            done = kubectl("apply", "--server-side", *how, "-f", path)
            assert done.returncode == 0, f"{' '.join(how)} {done.stderr}"
        assert wanted["metadata"]["name"] == name, "a sample's name is its file's"
        end = time.monotonic() + LONG
        while True:
            job = json.loads(kubectl("get", "dsj", name, "-o", "json").stdout)
            conditions = {one["type"]: one for one in job.get("status", {}).get("conditions", [])}
            accepted = conditions.get("Accepted", {}).get("status") == "True"
            pods = kubectl("get", "pods", "-l", f"training.dsj.dev/job-name={name}", "-o", "name").stdout.split()
            expected = 0 if wanted["spec"].get("suspend") else wanted["spec"]["workers"]["replicas"]
            if accepted and len(pods) == expected and (expected or conditions.get("Suspended", {}).get("status") == "True"):
                break
            if time.monotonic() > end:
                self.log.seek(0)
                raise AssertionError(f"{len(pods)} of {expected} pods, {json.dumps(conditions)}\n{self.log.read()[-2000:]}")
            time.sleep(0.2)
        changed = missing(wanted["spec"], job["spec"])
        assert not changed, f"not kept: {changed}"
        return len(pods)

    def template(self):
        """What the template says and what the job says are in its pods, and the status tells which template it was."""
        pod = json.loads(kubectl("get", "pod", "from-template-worker-1-1", "-o", "json").stdout)
        worker = pod["spec"]["containers"][0]
        env = {one["name"]: one.get("value") for one in worker["env"]}
        assert (env["NCCL_IB_HCA"], env["NCCL_DEBUG"]) == ("mlx5", "INFO"), env
        assert worker["image"].startswith("registry.example/dsj-worker-gpu") and worker["resources"]["limits"]["nvidia.com/gpu"] == "8", worker
        labels = pod["metadata"]["labels"]
        assert (labels["pool"], labels["team"], pod["spec"]["nodeSelector"]) == ("h200", "vision", {"pool": "h200", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}), labels
        job = json.loads(kubectl("get", "dsj", "from-template", "-o", "json").stdout)
        assert job["status"]["template"] == {"name": "h200", "generation": 1}, job["status"]
        assert "h200, generation 1" in kubectl("dsj", "describe", "from-template").stdout

    def plugin(self):
        """`kubectl dsj` is this program: one that suspends, one that describes, and the codes of its refusals."""
        shown = kubectl("dsj", "get", "-o", "name")
        assert sorted(shown.stdout.split()) == self.names, f"{shown.stdout}{shown.stderr}"
        table = kubectl("dsj", "get", "gang").stdout.splitlines()
        assert table[0].split() == "NAME STATE REASON WORKERS STEP PROGRESS RESTARTS CKPT AGE".split(), table
        described = kubectl("dsj", "describe", "failure-rules", "-n", "default").stdout
        assert "Accepted " in described and "failure-rules-worker-1-1" in described, described
        done = kubectl("dsj", "suspend", "zero1", "--wait", "--timeout", str(LONG))
        assert done.returncode == 0 and "zero1 is Suspended" in done.stdout, f"{done.stdout}{done.stderr}"
        assert "zero1-worker" not in kubectl("get", "pods", "-o", "name").stdout, "its pods are there"
        refused = kubectl("dsj", "describe", "nobody")
        assert refused.returncode == 4 and "not found" in refused.stderr, f"{refused.returncode} {refused.stderr}"


def main():
    os.environ["PATH"] = os.path.abspath(sys.argv[2]) + ":" + os.environ["PATH"]
    samples, report = Samples(sys.argv[1], sys.argv[2]), Report("Samples", sys.argv[3])
    try:
        if shutil.which("kubectl"):
            samples.start()
        pods = [report.run(name, lambda name=name: samples.check(name), tools=("kubectl",)) for name in samples.names]
        report.run("template", samples.template, tools=("kubectl",))
        report.run("plugin", samples.plugin, tools=("kubectl",))
    finally:
        samples.stop()
    print(f"result: samples: {len(samples.names)} jobs, {sum(count or 0 for count in pods)} pods made of them")
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
