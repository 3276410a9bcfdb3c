#!/usr/bin/env python3
"""The operator on a real control plane with simulated nodes, each figure beside a raw loop that creates the same objects on
the same API server in the same run.

Usage: cluster.py run --simulated 100 operator_bench.py BIN [--write FILE] [--runs N] [--small]
--write puts the table into FILE (docs/reports/performance_operator.md). --small: a tenth of everything, to try the bench itself.
"""
import argparse
import os
import re
import subprocess
import time

from operator_bench_api import Api, PodWatch, at_once, percentile

NAMESPACE = "bench"
JOBS = "/apis/training.dsj.dev/v1alpha1/namespaces/bench/deepspeedjobs"
PODS = "/api/v1/namespaces/bench/pods"
OURS = {"deepspeedjobs", "pods", "services", "configmaps", "serviceaccounts", "roles", "rolebindings", "events",
        "networkpolicies"}
WRITES = {"POST", "PUT", "PATCH", "DELETE", "APPLY", "DELETECOLLECTION"}
THREADS = 16


def job(name, replicas, suspend=False):
    return {"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {"name": name},
            "spec": {"suspend": suspend,
                     "deepspeed": {"config": {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}},
                     "training": {"modelNameOrPath": "/m", "dataPath": "/d", "outputDir": "/tmp/o", "maxSteps": 100},
                     "workers": {"replicas": replicas,
                                 "template": {"spec": {"containers": [{"name": "worker", "image": "none:1"}]}}}}}


class Bench:
    def __init__(self, binaries, small):
        self.api = Api()
        self.scale = 10 if small else 1
        self.rows, self.load = [], []
        self.log = open(os.path.join(os.environ["DSJ_CLUSTER_STATE"], "operator.log"), "wb")
        self.port = 15000 + os.getpid() % 10000
        self.program = os.path.join(binaries, "dsj-operator")
        self.reconcile = os.path.join(binaries, "bench_reconcile")
        self.prepare()
        self.start_operator()
        self.note_load("begin")

    def start_operator(self):
        self.operator = subprocess.Popen([self.program, "--health-address", f"127.0.0.1:{self.port}"],
                                         env=dict(os.environ, DSJ_WORKER_IMAGE="none:1"), stdout=self.log, stderr=self.log)
        self.until(lambda: self.metric("deepspeedjob_leader") == 1, "the operator leads")

    def stop_operator(self):
        self.operator.terminate()
        self.operator.wait(30)

    def prepare(self):
        with open(os.path.join(os.path.dirname(__file__), "..", "crds", "deepspeedjobs.yaml"), "rb") as file:
            self.api.apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/deepspeedjobs.training.dsj.dev", file.read())
        self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self.until(lambda: self.api.call("GET", JOBS, check=False)[0] == 200, "the resource is served")
        self.until(lambda: self.api.call("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default", check=False)[0] == 200,
                   "the default account")

    # ---- looking
    @staticmethod
    def until(holds, what, seconds=600):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise SystemExit(f"not within {seconds} s: {what}")
            time.sleep(0.1)

    def metrics(self):
        done = subprocess.run(["curl", "-sf", f"http://127.0.0.1:{self.port}/metrics"], capture_output=True, text=True, check=False)
        return done.stdout

    def metric(self, name):
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.metrics(), re.MULTILINE)
        return float(found[1]) if found else None

    def buckets(self, name):
        return [(float(edge), float(count)) for edge, count in
                re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\S+)$', self.metrics(), re.MULTILINE)]

    def resident_mib(self):
        with open(f"/proc/{self.operator.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

    def cpu(self):
        """Seconds of CPU that the operator has used: what a busy machine does not distort."""
        with open(f"/proc/{self.operator.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def note_load(self, when):
        self.load.append((when, os.getloadavg()[0]))

    def row(self, what, ours, raw, ratio, goal):
        self.rows.append((what, ours, raw, ratio, goal))
        print(f"result: {what}: {ours}" + (f", raw {raw}, ratio {ratio}" if raw else ""), flush=True)
        self.note_load(what)

    # ---- doing
    def clear(self):
        """Jobs first, or their pods would come again; until nobody clears up any more."""
        self.api.call("DELETE", JOBS, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
        self.api.call("DELETE", PODS, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        self.until(lambda: not self.api.count(PODS) and not self.api.count(JOBS), "everything is gone")
        self.settle()

    def settle(self):
        """Until the operator has written nothing for two seconds."""
        def written():
            return sum(float(n) for n in re.findall(r'^deepspeedjob_api_requests_total{[^}]*verb="(?:POST|PATCH|DELETE)"} (\S+)$',
                                                    self.metrics(), re.MULTILINE))
        last = -1
        while (now := written()) != last:
            last = now
            time.sleep(2)

    def children(self, of):
        """Bodies of what the operator made for a job, to be made again under other names by the raw loop."""
        bodies = []
        for path in (f"/api/v1/namespaces/{NAMESPACE}/configmaps", f"/api/v1/namespaces/{NAMESPACE}/services",
                     f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
                     f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
                     f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
                     f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies", PODS):
            found = self.api.list(path, f"training.dsj.dev/job-name={of}")
            bodies += [(path, self.bare(one)) for one in found]
        return bodies

    @staticmethod
    def bare(thing):
        """As the operator sent it, of nobody's job."""
        metadata = {"name": thing["metadata"]["name"], "labels": {"bench": "raw"}}
        spec = {key: value for key, value in thing.items() if key not in ("metadata", "status")}
        if "nodeName" in spec.get("spec", {}):
            del spec["spec"]["nodeName"]
        for field in ("clusterIP", "clusterIPs"):
            if spec.get("spec", {}).get(field) != "None" and field in spec.get("spec", {}):
                if spec["spec"][field] != ["None"]:
                    del spec["spec"][field]
        spec.get("spec", {}).pop("serviceAccountName", None)
        spec.get("spec", {}).pop("serviceAccount", None)
        return dict(spec, metadata=metadata)

    def raw(self, bodies, copies):
        """Seconds from the first create to the last pod's event, with copies of the objects of one job."""
        pods = sum(path == PODS for path, _ in bodies) * copies
        work = []
        for copy in range(copies):
            for path, body in bodies:
                name = f"raw-{copy}-{len(work)}-{body['metadata']['name']}"[:63].rstrip("-")
                work.append((path, dict(body, metadata=dict(body["metadata"], name=name))))
        with PodWatch(self.api, PODS, "bench=raw") as watch:
            start = time.monotonic()
            at_once(THREADS, work, lambda api, one: api.call("POST", *one))
            took = watch.wait(pods) - start
        self.api.call("DELETE", PODS + "?labelSelector=bench%3Draw",
                      {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        for path in {path for path, _ in work} - {PODS}:
            for one in self.api.list(path, "bench=raw"):
                self.api.call("DELETE", f"{path}/{one['metadata']['name']}", check=False)
        return took

    def gang(self, name, replicas):
        with PodWatch(self.api, PODS, f"training.dsj.dev/job-name={name}") as watch:
            start = time.monotonic()
            self.api.call("POST", JOBS, job(name, replicas))
            return watch.wait(replicas) - start

    # ---- the figures
    def small_jobs(self, runs):
        # The first job of a new API server pays for what that sets up then; it is shown, and not counted.
        posted = time.monotonic()
        self.api.call("POST", JOBS, dict(job("first", 8, suspend=True)))
        answered = time.monotonic()
        self.until(lambda: self.metric('deepspeedjob_jobs{phase="Suspended"}') == 1, "the first is suspended")
        print(f"result: the first job: create answered in {1000 * (answered - posted):.0f} ms, suspended after "
              f"{1000 * (time.monotonic() - posted):.0f} ms; warm-up of 1 × 8: {1000 * self.gang('warm', 8):.0f} ms", flush=True)
        ours, raw, cpu = [], [], 0
        for run in range(runs):
            before = self.cpu()
            ours.append(self.gang(f"small-{run}", 8) * 1000)
            cpu += self.cpu() - before
            if run == 0:
                bodies = self.children("small-0")
            raw.append(self.raw(bodies, 1) * 1000)
            if run % 10 == 9:
                self.clear()
        print("result: runs of 1 × 8 in ms: " + " ".join(f"{ms:.0f}" for ms in ours))
        self.clear()
        p50, p99 = percentile(ours, 50), percentile(ours, 99)
        raw50, raw99 = percentile(raw, 50), percentile(raw, 99)
        self.row(f"create → all pods of 1 × 8, {runs} runs, p50",
                 f"{p50:.0f} ms ({1000 * cpu / runs:.0f} ms of CPU)", f"{raw50:.0f} ms", f"{p50 / raw50:.2f}", "60 ms")
        self.row("the same, p99", f"{p99:.0f} ms", f"{raw99:.0f} ms", f"{p99 / raw99:.2f}", "250 ms")

    def one_large(self):
        count = 1024 // self.scale
        before = self.cpu()
        took = self.gang("large", count)
        self.settle()
        cpu = self.cpu() - before
        bodies = [one for one in self.children("large")]
        self.clear()
        raw = self.raw(bodies, 1)
        self.clear()
        self.row(f"create → all pods of 1 × {count:,}", f"{took:.1f} s ({count / took:.0f} pods/s, {cpu:.1f} s of CPU until all run)",
                 f"{raw:.1f} s",
                 f"{took / raw:.2f}", "4 s")

    def many_small(self):
        count, before = 100 // self.scale, self.cpu()
        with PodWatch(self.api, PODS, "app.kubernetes.io/managed-by=dsj-operator") as watch:
            start = time.monotonic()
            at_once(8, [(JOBS, job(f"many-{i}", 4)) for i in range(count)], lambda api, one: api.call("POST", *one))
            submitted = time.monotonic()
            end = watch.wait(4 * count)
        self.settle()
        cpu = self.cpu() - before
        bodies = self.children("many-0")
        self.clear()
        raw = self.raw(bodies, count)
        self.clear()
        took = end - start
        self.row(f"create → all pods of {count} × 4 (submitted in {submitted - start:.1f} s)",
                 f"{took:.1f} s ({cpu:.1f} s of CPU until all run)", f"{raw:.1f} s",
                 f"{took / raw:.2f}", "")

    def rested_mib(self):
        """Once the operator has given back what it does not use: it waits five quiet seconds for that."""
        self.settle()
        time.sleep(12)
        return self.resident_mib()

    def memory_and_passes(self):
        self.row("RSS, idle after the above", f"{self.rested_mib():.1f} MiB", "", "", "")
        jobs, foreign = 100 // self.scale, 3000 // self.scale
        at_once(8, [(JOBS, job(f"mem-{i}", 10)) for i in range(jobs)], lambda api, one: api.call("POST", *one))
        self.until(lambda: self.metric("deepspeedjob_pods") == 10 * jobs, "the pods are in the cache")
        self.row(f"RSS with {jobs} jobs, {10 * jobs:,} pods", f"{self.rested_mib():.1f} MiB", "", "", "40 MiB")
        self.stop_operator()  # a new leader looks at every job once, and finds nothing to do
        self.start_operator()
        self.settle()
        edges = self.buckets("deepspeedjob_reconcile_duration_seconds")
        passes = edges[-1][1]
        p50, p99 = (next(edge for edge, count in edges if count >= part * passes) for part in (0.5, 0.99))
        self.row(f"passes that find nothing to do, 10 pods a job, {passes:.0f} passes, wall time by histogram buckets",
                 f"p50 ≤ {p50 * 1000:g} ms, p99 ≤ {p99 * 1000:g} ms", "", "", "")
        alone = subprocess.run([self.reconcile], capture_output=True, text=True, check=True).stdout
        count, p50, p99, ratio = re.search(r"(\d+) passes: p50 (\S+) us, p99 (\S+) us; (\S+) of parsing one pod", alone).groups()
        self.row(f"the same without a server, {int(count):,} passes, compared with parsing one pod", f"p50 {p50} µs, p99 {p99} µs",
                 f"{float(p50) / float(ratio):.1f} µs", ratio, "p99 1 ms")
        start = self.rested_mib()
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "foreign-", "labels": {"app": "foreign"}},
               "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none"}]}}
        at_once(THREADS, [(PODS, pod)] * foreign, lambda api, one: api.call("POST", *one))
        self.row(f"RSS change when {foreign:,} foreign pods are added", f"{self.rested_mib() - start:+.1f} MiB", "", "", "1 MiB")
        self.clear()

    def writes_at_rest(self):
        count, seconds = 1000 // self.scale, 60
        at_once(8, [(JOBS, job(f"rest-{i}", 2, suspend=True)) for i in range(count)], lambda api, one: api.call("POST", *one))
        self.until(lambda: self.metric('deepspeedjob_jobs{phase="Suspended"}') == count, "all are suspended")
        self.settle()

        def writes():
            found = {}
            for labels, number in re.findall(r"^apiserver_request_total{([^}]*)} (\S+)$", self.api.text("/metrics"), re.MULTILINE):
                label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
                if label["verb"] in WRITES:
                    found[label["resource"]] = found.get(label["resource"], 0) + float(number)
            return found
        first = writes()
        time.sleep(seconds)
        second = writes()
        changed = {name: int(number - first.get(name, 0)) for name, number in second.items() if number != first.get(name, 0)}
        ours = sum(number for name, number in changed.items() if name in OURS)
        others = ", ".join(f"{name} {number}" for name, number in sorted(changed.items()) if name not in OURS)
        self.row(f"writes in {seconds} s with {count:,} idle, suspended jobs", f"{ours}", "", "", "0")
        print(f"result: of the whole control plane in that time: {others or 'none'}")
        self.row(f"RSS with {count:,} suspended jobs", f"{self.rested_mib():.1f} MiB", "", "", "")

    def close(self):
        self.note_load("end")
        self.stop_operator()
        self.log.close()

    def table(self):
        lines = ["| | operator | raw loop | ratio | goal |", "|---|---|---|---|---|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        loads = [number for _, number in self.load]
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
        lines += ["", f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores ({model}) that etcd, API server, scheduler, controller "
                  f"manager, kwok and this bench share with the operator; load average between {min(loads):.1f} and "
                  f"{max(loads):.1f} during the run."]
        return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries")
    parser.add_argument("--write")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    bench = Bench(options.binaries, options.small)
    try:
        bench.row("RSS, started", f"{bench.resident_mib():.1f} MiB", "", "", "20 MiB")
        bench.small_jobs(options.runs)
        bench.one_large()
        bench.many_small()
        bench.memory_and_passes()
        bench.writes_at_rest()
    finally:
        bench.close()
    table = bench.table()
    print(table)
    if options.write:
        with open(options.write, encoding="utf-8") as file:
            text = file.read()
        head, rest = text.split("<!-- table -->\n")[:2]
        tail = rest.split("<!-- end -->\n", 1)[1]
        with open(options.write, "w", encoding="utf-8") as file:
            file.write(f"{head}<!-- table -->\n{table}<!-- end -->\n{tail}")


if __name__ == "__main__":
    main()
