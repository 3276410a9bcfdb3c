"""What a job needs on a cluster: the operator installed by its chart from images of this build, a claim with a model and data, a
manifest; the same job run on this machine for its losses; hands that break things."""
import glob
import json
import os
import shutil
import signal
import time

from history import History, named_after
from cases import expect
from kube import LONG, condition_of, crds_served, eventually, get, holds, kubectl, patch, run
from never import final_step, violations
from references import References, losses_of

NAMESPACE, OPERATOR_NAMESPACE, RELEASE = "jobs", "dsj-system", "dsj"
DEPLOYMENT = "dsj-deepspeedjob"
USER = 65532  # of the images
KINDS = "pods,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies"
REST_SECONDS = 6


def job_label(name):
    return "training.dsj.dev/job-name=" + name


class World:
    def __init__(self, repository, build):
        self.repository, self.bin, self.build = repository, os.path.join(build, "bin"), build
        self.cluster = os.environ["DSJ_CLUSTER"]
        self.room = os.path.join(os.environ["DSJ_CLUSTER_STATE"], "claim")  # the machine's own disk, seen by every node
        self.references = References(self.room, self.bin)

    # ---- installation
    def images(self, tag="dev", worker="worker"):
        """Of this build, loaded into every node, present and to come. worker: the target of scripts/image.sh for the workers'."""
        folder = os.path.join(os.environ["DSJ_CLUSTER_STATE"], "archives")
        os.makedirs(folder, exist_ok=True)
        for target, name in (("operator", "dsj-operator"), (worker, "dsj-worker")):
            archive = os.path.join(folder, f"{target}-{tag}.tar")
            run(os.path.join(self.repository, "scripts/image.sh"), "build", target, self.build, f"localhost/{name}:{tag}", archive,
                timeout=1200)
            run(self.cluster, "load", archive, timeout=1200)
            os.remove(archive)

    def values(self, tag="dev", *more):
        words = [f"image.operator.repository=localhost/dsj-operator,image.operator.tag={tag}",
                 "image.worker.repository=localhost/dsj-worker,image.worker.tag=dev", *more]
        return [word for value in words for word in ("--set", value)]

    def install(self, *more):
        run("helm", "install", RELEASE, os.path.join(self.repository, "charts/deepspeedjob"), "-n", OPERATOR_NAMESPACE,
            "--create-namespace", "--wait", "--timeout", "10m", *self.values("dev", *more), timeout=900)
        crds_served()

    def upgrade(self, tag, *more):
        run("helm", "upgrade", RELEASE, os.path.join(self.repository, "charts/deepspeedjob"), "-n", OPERATOR_NAMESPACE, "--wait",
            "--timeout", "10m", *self.values(tag, *more), timeout=900)

    def make_data(self):
        run(os.path.join(self.bin, "dsj-make-quickstart"), "--output", self.room, "--seed", "1", "--size", "tiny")
        self.own()

    def claim(self):
        """Model and data in a volume that every pod of the namespace mounts."""
        self.make_data()
        self.mount()

    def mount(self):
        """The namespace, and its claim on the room."""
        kubectl("create", "namespace", NAMESPACE)
        kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        kubectl("create", "-f", "-", thing={
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "claim"},
            "spec": dict(common, capacity={"storage": "1Gi"}, hostPath={"path": self.room})})
        kubectl("create", "-f", "-", thing={
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim", "namespace": NAMESPACE},
            "spec": dict(common, volumeName="claim", resources={"requests": {"storage": "1Gi"}})})

    def own(self):
        """The pods' user writes there."""
        for folder, _, files in os.walk(self.room):
            os.chown(folder, USER, USER)
            for name in files:
                os.chown(os.path.join(folder, name), USER, USER)

    # ---- jobs
    def manifest(self, name, steps=120, save=20, replicas=2, cpu=None, not_on=(), **spec):
        """The quickstart's job, tiny, with model and data on the claim. cpu: a limit, so how slow a step is."""
        with open(os.path.join(self.room, "ds_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        training = {"modelNameOrPath": "/data/model", "dataPath": "/data/data/train.json", "outputDir": f"/data/out/{name}",
                    "maxSteps": steps, "perDeviceTrainBatchSize": 4, "gradientAccumulationSteps": 8,
                    "learningRate": 1.0e-3, "weightDecay": 0.01, "warmupRatio": 0.05, "maxSeqLength": 128, "bf16": True, "seed": 1,
                    "saveStrategy": "steps", "saveSteps": save}
        worker = {"name": "worker", "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
                  "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        if cpu:
            worker["resources"] = {"limits": {"cpu": cpu}, "requests": {"cpu": "10m"}}
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                  "labelSelector": {"matchLabels": {"training.dsj.dev/job-name": name}}}
        # Pods of a lost node are the operator's affair, not of the taint manager's.
        patient = [{"key": f"node.kubernetes.io/{word}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}
                for word in ("not-ready", "unreachable")]
        template = {"spec": {"containers": [worker], "topologySpreadConstraints": [spread], "tolerations": patient,
                             "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]}}
        if not_on:
            avoid = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": list(not_on)}
            template["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [avoid]}]}}}
        return {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"deepspeed": {"config": config}, "training": training, **spec,
                         "workers": {"replicas": replicas, "slotsPerWorker": 1, "template": template}}}

    @staticmethod
    def apart(manifest):
        """Its workers run on nodes of their own, or not at all."""
        mine = {"matchLabels": {"training.dsj.dev/job-name": manifest["metadata"]["name"]}}
        affinity = manifest["spec"]["workers"]["template"]["spec"].setdefault("affinity", {})
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": mine, "topologyKey": "kubernetes.io/hostname"}]}

    def reference(self, manifest):
        """The losses of the same job run on this machine: {step: loss}."""
        return self.references.losses(manifest)


class Job:
    """One job of a case: made on entering, watched until the end, judged by the never-list, deleted."""

    def __init__(self, world, manifest):
        self.world, self.manifest = world, manifest
        self.name, self.ns = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        self.out = os.path.join(world.room, "out", self.name)
        self.history, self.gone = History(self.ns), False

    def __enter__(self):
        os.makedirs(os.path.dirname(self.out), exist_ok=True)
        shutil.rmtree(self.out, ignore_errors=True)
        self.world.own()
        self.history.__enter__()
        kubectl("create", "-f", "-", thing=self.manifest)
        return self

    def __exit__(self, kind, problem, _trace):
        try:
            if kind is None:
                self.judge()
            else:
                self.tell()
        finally:
            self.history.__exit__()
            kubectl("-n", self.ns, "delete", "dsj", self.name, "--ignore-not-found", "--wait=false", check=False)
        if kind is None:
            self.no_children()

    # ---- looking
    def get(self):
        return get("dsj", self.name, "-n", self.ns) or {}

    def status(self, part=None):
        status = self.get().get("status", {})
        return status.get(part, {}) if part else status

    def pods(self, live=True):
        """{worker: pod}, the newest of each."""
        found = {}
        for pod in get("pods", "-n", self.ns, "-l", job_label(self.name)) or []:
            labels = pod["metadata"]["labels"]
            worker, life = int(labels["training.dsj.dev/replica-index"]), int(labels["training.dsj.dev/incarnation"])
            if live and pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            if worker not in found or life > found[worker][0]:
                found[worker] = (life, pod)
        return {worker: pod for worker, (_, pod) in sorted(found.items())}

    def uids(self):
        return {worker: pod["metadata"]["uid"] for worker, pod in self.pods().items()}

    def step(self):
        """As the ranks wrote it, whether or not the API server is there."""
        try:
            with open(os.path.join(self.out, "metrics.jsonl"), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            return 0
        for line in reversed(lines):
            try:
                return json.loads(line)["step"]
            except (ValueError, KeyError):
                continue
        return 0

    def saved(self):
        """Steps of the published checkpoints: {step: (attempt that published it, when)}."""
        found = {}
        for path in glob.glob(os.path.join(self.out, "checkpoints/step-*/manifest.json")):
            try:
                with open(path, encoding="utf-8") as file:
                    found[int(path.split("step-")[1].split("/")[0])] = (json.load(file)["body"]["attempt"], os.stat(path).st_mtime)
            except (OSError, ValueError):
                continue
        return found

    def tell(self):
        """For a case that failed: what there is to see."""
        log = kubectl("-n", self.ns, "get", "dsj,pods", "-o", "wide", check=False).stdout
        log += json.dumps(self.status(), indent=1)[:6000]
        for worker, pod in self.pods(live=False).items():
            log += f"\n--- worker {worker}\n" + kubectl("-n", self.ns, "logs", pod["metadata"]["name"], "--tail=25", check=False).stdout
        log += "\n--- operator\n" + kubectl("-n", OPERATOR_NAMESPACE, "logs", "deployment/" + DEPLOYMENT, "--tail=25", check=False).stdout
        print(log, flush=True)

    # ---- waiting
    def until(self, kind):
        """A condition is True."""
        def reached():
            job = self.get()
            for other in {"Complete", "Failed"} - {kind}:
                expect(not holds(job, other), lambda: f"{other}: {condition_of(job, other)}")
            return job if holds(job, kind) else None
        return eventually(reached, lambda: f"{kind} of {self.name}: {json.dumps(self.status())[:3000]}")

    def until_step(self, step):
        return eventually(lambda: self.step() >= step and self.step(),
                          lambda: f"step {step} of {self.name}, at {self.step()}: {json.dumps(self.status())[:3000]}")

    def until_saved(self, step):
        """A checkpoint of that step or a later one, in the status."""
        return eventually(lambda: self.saved_in_status() >= step and self.saved_in_status(), f"checkpoint {step}")

    def saved_in_status(self):
        return self.status("checkpoint").get("lastSaved", {}).get("step", -1)

    def attempt(self):
        """As the fence on the disk has it."""
        try:
            with open(os.path.join(self.out, "checkpoints/attempt"), encoding="ascii") as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0

    def recovered(self, fault):
        """Does it. Seconds until the status said what it was, and until a newer attempt was behind the step at which the old one
        was: (named, stepping)."""
        attempt, step, start = self.attempt(), self.step(), time.monotonic()
        fault()
        eventually(lambda: self.attempt() > attempt, lambda: f"another attempt than {attempt}: {json.dumps(self.status())[:3000]}")
        self.until_step(step + 1)
        stepping = time.monotonic() - start
        return self.named(start), stepping

    def named(self, start):
        """Seconds from `start` (time.monotonic()) until the status said what had happened since."""
        return eventually(lambda: named_after(self.history.changes(), self.name, start),
                          lambda: f"a name for it: {json.dumps(self.status())[:3000]}")

    # ---- hands
    def suspend(self, yes=True):
        patch("dsj", self.name, {"spec": {"suspend": yes}}, self.ns)

    def process(self, worker, program):
        """The pid, on this machine, of a program in a worker's pod."""
        return process_of(self.pods()[worker]["metadata"]["uid"], program)

    def kill(self, worker, program, number=signal.SIGKILL):
        os.kill(self.process(worker, program), number)

    def limit(self, worker, cpu):
        """Another limit for the processor time of a running pod."""
        name = self.pods()[worker]["metadata"]["name"]
        container = {"name": "worker", "resources": {"limits": {"cpu": cpu}}}
        kubectl("-n", self.ns, "patch", "pod", name, "--subresource", "resize", "--type", "strategic", "-p",
                json.dumps({"spec": {"containers": [container]}}))

    def events(self, reason):
        return [event for event in get("events", "-n", self.ns) or []
                if event["reason"] == reason and event["involvedObject"]["name"] == self.name]

    # ---- judging
    def complete(self, same_losses=True):
        """Waits for Complete; every loss is the local run's, bit for bit. Returns the losses."""
        self.until("Complete")
        losses = losses_of(self.out)
        if same_losses:
            expected = self.world.reference(self.manifest)
            wrong = [step for step in expected if losses.get(step) != expected[step]]
            expect(not wrong and len(losses) == len(expected),
                   lambda: f"losses differ from the local run's from step {wrong[:1]} on: {[(losses.get(s), expected[s]) for s in wrong[:3]]}")
        return losses

    def judge(self):
        """The never-list, by everything that was recorded, and that nothing is written once all is done."""
        job = self.get()
        if any(holds(job, kind) for kind in ("Complete", "Failed", "Suspended")):
            eventually(lambda: not [p for p in (get("pods", "-n", self.ns, "-l", job_label(self.name)) or [])
                                    if p["status"].get("phase") not in ("Succeeded", "Failed")], "the end of its pods")
            self.rests()
        saved = self.saved()
        by_time = sorted(saved.items(), key=lambda entry: entry[1][1])
        attempts = [attempt for _, (attempt, _) in by_time]
        expect(attempts == sorted(attempts) and [step for step, _ in by_time] == sorted(saved),
               f"two publishing attempts: (step, (attempt, time)) {by_time}")
        expect(not holds(job, "Complete") or final_step(job) in saved or job["spec"]["training"].get("saveStrategy") == "no",
               f"Complete without a checkpoint of the last step: {sorted(saved)}")
        eventually(self.recorded, "the last changes in the history")
        found = violations(self.history.changes())
        expect(not found, "what must never happen: " + "; ".join(found))

    def recorded(self):
        """The history is not behind what there is. A watch that was cut may have missed the end of a pod."""
        things = [self.get(), *(get("pods", "-n", self.ns, "-l", job_label(self.name)) or [])]
        there = {thing["metadata"]["uid"]: int(thing["metadata"]["resourceVersion"]) for thing in things if thing}
        changes = self.history.changes()
        last = {change.uid: change for change in changes}
        if any(uid not in last or last[uid].version < version for uid, version in there.items()):
            return False
        mine = [change for change in last.values() if change.kind == "pod"
                and change.object["metadata"].get("labels", {}).get("training.dsj.dev/job-name") == self.name]
        return any(change.cut for change in changes) or all(c.what == "DELETED" or c.uid in there for c in mine)

    def rests(self):
        before = eventually(self._unchanged, "an end of the writes")
        expect(before == self.version(), "a write at rest")

    def version(self):
        return (self.get().get("metadata") or {}).get("resourceVersion")

    def _unchanged(self):
        first = self.version()
        time.sleep(REST_SECONDS)
        return first if first == self.version() else None

    def no_children(self):
        eventually(lambda: not children_of(self.ns, self.name), lambda: f"children left: {children_of(self.ns, self.name)}")


def children_of(ns, job):
    return kubectl("-n", ns, "get", KINDS, "-l", job_label(job), "-o", "name").stdout.split()


def running_process(pod_uid, program):
    """The first pid of a program in a pod, seen from this machine; nodes are process trees here. None: it does not run."""
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            with open(folder + "/cgroup", encoding="ascii") as file:
                groups = file.read()
            with open(folder + "/comm", encoding="ascii") as file:
                name = file.read().strip()
        except OSError:
            continue
        if pod_uid in groups and name == program:
            return int(os.path.basename(folder))
    return None


def process_of(pod_uid, program):
    found = running_process(pod_uid, program)
    expect(found, f"no {program} in pod {pod_uid}")
    return found


def operator_pods():
    found = get("pods", "-n", OPERATOR_NAMESPACE, "-l", "app.kubernetes.io/component=operator") or []
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def operator_ready():
    kubectl("-n", OPERATOR_NAMESPACE, "rollout", "status", "deployment/" + DEPLOYMENT, f"--timeout={LONG}s")


def kill_operator():
    """As a crash would; the kubelet starts it again. After a crash it may not run yet."""
    def process():
        return next(filter(None, (running_process(pod["metadata"]["uid"], "dsj-operator") for pod in operator_pods())), None)
    os.kill(eventually(process, "no operator runs"), signal.SIGKILL)
