#!/usr/bin/env python3
"""docs/reports/transcript.md: a fresh cluster from `helm install` to `helm uninstall`, every line as it was printed.

Usage: tests/cluster/cluster.py run --nodes 2 transcript.py REPOSITORY BUILD FILE"""
import os
import subprocess
import sys
import time

import harness
from cases import expect
from kube import eventually, get, holds
from world import World, operator_ready

CLAIM = """apiVersion: v1
kind: PersistentVolume
metadata: {name: claim}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  hostPath: {path: /srv/claim}   # a disk that all nodes share; model and data of dsj-make-quickstart are on it
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claim, namespace: team}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: claim
  resources: {requests: {storage: 1Gi}}
"""
JOB = """apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: tune, namespace: team}
spec:
  deepspeed:
    config:
      train_micro_batch_size_per_gpu: auto
      train_batch_size: auto
      gradient_accumulation_steps: auto
      bf16: {enabled: auto}
      zero_optimization: {stage: 2}
      optimizer: {type: AdamW, params: {lr: auto, weight_decay: auto}}
  training:
    modelNameOrPath: /data/model
    dataPath: /data/data/train.json
    outputDir: /data/out
    maxSteps: 200
    perDeviceTrainBatchSize: 4
    gradientAccumulationSteps: 8
    learningRate: 1e-3
    maxSeqLength: 128
    bf16: true
    saveSteps: 50
  workers:
    replicas: 2
    slotsPerWorker: 1
    template:
      spec:
        containers:
          - name: worker
            env: [{name: OMP_NUM_THREADS, value: "1"}]
            volumeMounts: [{name: data, mountPath: /data}]
        volumes:
          - name: data
            persistentVolumeClaim: {claimName: claim}
"""


class Transcript:
    def __init__(self, world):
        self.world, self.text = world, []

    def say(self, sentence):
        self.text.append(f"\n{sentence}\n")

    def shown(self, text):
        return text.replace(self.world.room, "/srv/claim").replace(self.world.repository.rstrip("/") + "/", "").rstrip()

    def block(self, command, output):
        self.text.append("\n```console\n$ " + command + "\n" + self.shown(output) + "\n```\n")

    def run(self, command, given=None):
        done = subprocess.run(command, shell=True, input=given, capture_output=True, text=True, check=False, cwd=self.world.repository,
                              timeout=300)
        expect(done.returncode == 0, f"{command}: {done.stderr}")
        self.block(command, done.stdout + "".join(line + "\n" for line in done.stderr.splitlines() if "walk.go" not in line))

    def file(self, name, text):
        self.text.append(f"\n`{name}`:\n\n```yaml\n{text}```\n")

    def watch(self, command, until):
        """A command that does not end by itself, until `until()`."""
        with harness.Lines(*command.split()) as seen:
            eventually(until, command, 600)
            time.sleep(2)
        self.block(command, "\n".join(seen.lines()))


def tell(world, out):
    out.text.append("# From helm install to helm uninstall\n\nWhat you see when you install the operator, run a job, and remove "
                    "both. Command: `tests/cluster/jobs/transcript.py`, on\na fresh cluster of two real nodes "
                    "(tests/cluster/README.md), with images of `scripts/image.sh`. The output is not edited.\n")
    out.run("kubectl get nodes")
    out.run("helm install dsj charts/deepspeedjob -n dsj-system --create-namespace --wait "
            "--set image.operator.repository=localhost/dsj-operator,image.operator.tag=dev "
            "--set image.worker.repository=localhost/dsj-worker,image.worker.tag=dev")
    operator_ready()
    out.run("kubectl -n dsj-system get pods")
    out.say("## A job")
    out.file("claim.yaml", CLAIM)
    out.run("kubectl create namespace team")
    out.run("kubectl label namespace team pod-security.kubernetes.io/enforce=restricted")
    out.run("kubectl apply -f -  # claim.yaml", CLAIM.replace("/srv/claim", world.room))
    out.file("job.yaml", JOB)
    out.run("kubectl apply -f -  # job.yaml", JOB)

    def status():
        return get("dsj", "tune", "-n", "team") or {}
    out.watch("kubectl -n team get dsj -w", lambda: status().get("status", {}).get("checkpoint", {}).get("lastSaved", {}).get("step", 0) >= 50)
    out.run("kubectl -n team get pods -o wide")
    out.run("kubectl -n team logs tune-worker-1-1 --tail 5")
    out.say("## Suspend and resume: all ranks save one step, the pods are deleted")
    out.run("kubectl -n team patch dsj tune --type merge -p '{\"spec\": {\"suspend\": true}}'")
    out.run("kubectl -n team wait dsj tune --for condition=Suspended --timeout 120s")
    out.run("kubectl -n team get dsj,pods")
    out.run("kubectl -n team patch dsj tune --type merge -p '{\"spec\": {\"suspend\": false}}'")
    eventually(lambda: status().get("status", {}).get("phase") == "Running", "Running")
    out.say("## Delete a pod: all ranks save one step, that pod alone is made again, nothing is charged")
    out.run("kubectl -n team delete pod tune-worker-1-2 --wait=false")
    out.watch("kubectl -n team get dsj -w", lambda: holds(status(), "Complete"))
    out.run("kubectl -n team get dsj -o wide")
    out.run("kubectl -n team get dsj tune -o jsonpath='{range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{\"\\n\"}{end}'")
    out.run("kubectl -n team get events.events.k8s.io --field-selector regarding.kind=DeepSpeedJob "
            "-o custom-columns=TYPE:.type,REASON:.reason,NOTE:.note")
    out.run("kubectl -n team get pods,services,configmaps,roles,rolebindings -l training.dsj.dev/job-name=tune")
    out.say("## Delete the job and uninstall")
    out.run("kubectl -n team delete dsj tune")
    eventually(lambda: not get("pods,services,configmaps,roles,rolebindings", "-n", "team", "-l", "training.dsj.dev/job-name=tune"), "children")
    out.run("kubectl -n team get pods,services,configmaps,roles,rolebindings -l training.dsj.dev/job-name=tune")
    out.run("helm uninstall dsj -n dsj-system --wait")
    eventually(lambda: not get("pods", "-n", "dsj-system"), "the operator's pod")
    out.run("kubectl -n dsj-system get all,leases,roles,rolebindings,networkpolicies")
    out.run("kubectl get clusterroles,clusterrolebindings,validatingadmissionpolicies -l app.kubernetes.io/instance=dsj")
    out.run("kubectl get crd deepspeedjobs.training.dsj.dev")


def main():
    world = World(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
    world.images()
    world.make_data()
    out = Transcript(world)
    tell(world, out)
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        file.write("".join(out.text))


main()
