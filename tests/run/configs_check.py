#!/usr/bin/env python3
"""Every file in configs/ is taken by `dsj validate` without an error or an unsupported key, as a job of another machine, for
their models and data are not here; those in configs/cluster/ as a cluster takes them (samples_cluster_check.py applies them
to one). Those in configs/roll/ are not
ds_configs by themselves: `dsj import roll` makes a job of a pipeline that names one, and the job is checked. What is in a
folder templates/ is no job: the cluster's check applies it. Those in configs/trainer/ are run by tests/run/fake/nodes_run_test.cc.

Usage: configs_check.py BIN_DIRECTORY CONFIGS_DIRECTORY GTEST_REPORT. Exit 1 when one is not.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, expect  # noqa: E402


def findings_of(dsj, path):
    done = subprocess.run([dsj, "validate", path, "-o", "json", "--elsewhere"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        return [f"exit code {done.returncode}: {done.stderr.decode(errors='replace').strip()}"]
    answer = json.loads(done.stdout)
    bad = [f"{f['severity']} {f['path']}: {f['message']}" for f in answer["findings"] if f["severity"] != "warning"]
    return bad or ([] if done.returncode == 0 and answer["valid"] else ["not valid, without a finding"])


PIPELINE = """defaults: [../config/{0}@_here_]
pretrain: some/model
actor_train:
  training_args: {{per_device_train_batch_size: 1}}
  strategy_args: {{strategy_name: deepspeed_train, strategy_config: "${{{0}}}"}}
  device_mapping: list(range(0,2))
"""


def job_of(dsj, path, folder):
    """The job of a pipeline whose ../config/ is not there, so that dsj takes the file that it was built with."""
    name = os.path.splitext(os.path.basename(path))[0]
    pipeline, job = os.path.join(folder, "run", "pipeline.yaml"), os.path.join(folder, "job.yaml")
    os.mkdir(os.path.dirname(pipeline))
    with open(pipeline, "w", encoding="utf-8") as file:
        file.write(PIPELINE.format(name))
    done = subprocess.run([dsj, "import", "roll", pipeline, "--role", "actor_train", "--output", job], capture_output=True,
                          text=True, check=False)
    expect(done.returncode == 0, f"dsj import roll: {done.stderr}")
    expect(f"configs/roll/{name}.yaml" in done.stderr, f"dsj does not say which file it took: {done.stderr}")
    return job


def check(dsj, path):
    with tempfile.TemporaryDirectory() as folder:
        roll = os.path.basename(os.path.dirname(path)) == "roll"
        bad = findings_of(dsj, job_of(dsj, path, folder) if roll else path)
    expect(not bad, "; ".join(bad))


def main():
    dsj, folder, report = os.path.join(sys.argv[1], "dsj"), sys.argv[2], Report("Configs", sys.argv[3])
    names = sorted(os.path.relpath(os.path.join(path, name), folder) for path, _, files in os.walk(folder) for name in files
                   if name.endswith((".json", ".yaml")) and os.path.basename(path) not in ("templates", "trainer"))
    for name in names:
        report.run(name, lambda name=name: check(dsj, os.path.join(folder, name)))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
