"""Jobs run on this machine by `dsj run`, for the losses that a job on a cluster has to have."""
import hashlib
import json
import os
import shutil
import subprocess

from cases import expect


def losses_of(folder):
    """{step: loss} of metrics.jsonl; no step may be there twice or be missing before the last."""
    losses = {}
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            if "loss" in entry:
                expect(entry["step"] not in losses, f"step {entry['step']} twice in metrics.jsonl")
                losses[entry["step"]] = entry["loss"]
    expect(list(losses) == list(range(1, len(losses) + 1)), f"steps are missing: {sorted(losses)}")
    return losses


class References:
    """One run per shape, kept in the cluster's room: a case that is run again on the same cluster finds it. room has
    model/ and data/train.json of dsj-make-quickstart; programs: the folder of dsj and dsj-train."""

    def __init__(self, room, programs):
        self._room, self._bin = room, programs

    def losses(self, manifest):
        """{step: loss} of the same job with as many ranks on this machine."""
        spec = manifest["spec"]
        local = dict(spec["training"], modelNameOrPath=f"{self._room}/model", dataPath=f"{self._room}/data/train.json")
        shape = [{k: v for k, v in local.items() if k not in ("outputDir", "saveSteps")}, spec["deepspeed"],
                 spec["workers"]["replicas"], os.stat(os.path.join(self._bin, "dsj-train")).st_mtime_ns]
        key = hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest()[:16]
        folder = os.path.join(self._room, f"reference-{key}")
        if not os.path.exists(os.path.join(folder, "done")):
            self._run(manifest, dict(local, outputDir=os.path.join(folder, "run")), folder)
        return losses_of(os.path.join(folder, "run"))

    def _run(self, manifest, training, folder):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        path = os.path.join(folder, "job.yaml")
        with open(path, "w", encoding="utf-8") as file:
            workers = {"replicas": 1, "slotsPerWorker": manifest["spec"]["workers"]["replicas"]}
            json.dump({"apiVersion": manifest["apiVersion"], "kind": manifest["kind"],
                       "metadata": {"name": "reference"},
                       "spec": {"deepspeed": manifest["spec"]["deepspeed"], "training": training, "workers": workers}},
                      file)
        done = subprocess.run([os.path.join(self._bin, "dsj"), "run", path], env=dict(os.environ, OMP_NUM_THREADS="1"),
                              capture_output=True, text=True, check=False, timeout=1200)
        expect(done.returncode == 0, f"the local run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        with open(os.path.join(folder, "done"), "w", encoding="ascii"):
            pass
