#!/usr/bin/env python3
"""Every manifest of bad_manifests.py on a real API server, with the operator's webhook up and then down: where it is stopped, by
what word, and that no pod ever appears.

Usage: tests/cluster/cluster.py run --api refusals_check.py REPOSITORY BIN GTEST_REPORT, or `refusals_check.py --write` for
docs/reports/refusals.md (no cluster). Exit 1 on a failure. Needs helm and kubectl on PATH; without them all is skipped, loudly.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from bad_manifests import ACCEPTED, BEFORE_EDITS, CASES, CONFIG_MAPS, CRD, EDITS, GOOD, POLICY, WEBHOOK, merged  # noqa: E402
from chart_check import Chart  # noqa: E402
from cases import Report, expect  # noqa: E402
from kube import LONG, crds_served, eventually, free_port, kubectl, run  # noqa: E402

PAGE = os.path.join(HERE, "../../docs/reports/refusals.md")
SIGNS = {POLICY: "ValidatingAdmissionPolicy 'r-deepspeedjob-ops-jobs'", WEBHOOK: 'admission webhook "jobs.training.dsj.dev" denied'}


def page():
    counts = {stop: sum(case[1] == stop for case in CASES + EDITS) for stop in (CRD, POLICY, WEBHOOK, ACCEPTED)}
    lines = ["# What is refused, and where", "",
             f"Which check refuses a wrong manifest, and with which message. `tests/run/refusals_check.py` tries {len(CASES) + len(EDITS)} manifests on a",
             "real API server, with the webhook up and down. Its `--write` prints this page from `tests/run/bad_manifests.py`, which has",
             "the manifests.", "",
             "| refused by | what it is | manifests |", "|---|---|---|",
             f"| CRD | the resource's schema and its rules | {counts[CRD]} |",
             f"| policy | the chart's ValidatingAdmissionPolicy for pod templates | {counts[POLICY]} |",
             f"| webhook | the checks of `dsj validate`; while the webhook is down, condition Accepted makes them | {counts[WEBHOOK]} |",
             f"| Accepted | the job is stored, condition Accepted is False, no pod starts | {counts[ACCEPTED]} |", "",
             "When any of these checks refuses an edit of a running job, the job keeps its last accepted spec and its pods.", "",
             "| manifest | refused by | while the webhook is down | part of the message |", "|---|---|---|---|"]
    for what, stop, word, _ in CASES + EDITS:
        lines.append(f"| {what} | {stop} | {ACCEPTED if stop == WEBHOOK else stop} | {word.replace('|', '')} |")
    return "\n".join(lines) + "\n"


class Refusals:
    def __init__(self, repository, binaries):
        self.chart = Chart(repository, binaries)
        self.log = os.path.join(self.chart.room, "operator.log")
        self.process = self.watch = self.told = self.health = None
        self.problems, self.counted = [], {}

    # ---- the cluster and the operator
    def install(self):
        run("helm", "install", "r", self.chart.chart, "-n", "ops", "--create-namespace")
        crds_served()
        kubectl("create", "namespace", "team")
        for name, key, text in CONFIG_MAPS:
            kubectl("create", "-f", "-", thing={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team"},
                                                "data": {key: text}})
        with open(os.path.join(self.chart.room, "pods"), "wb") as seen:
            self.watch = subprocess.Popen(["kubectl", "-n", "team", "get", "pods", "--watch", "-o", "name"], stdout=seen)
        config = self.chart.config_of("operator", kubectl("-n", "ops", "create", "token", "r-deepspeedjob", "--duration=1h").stdout.strip())
        deployment = json.loads(kubectl("-n", "ops", "get", "deployment", "r-deepspeedjob", "-o", "json").stdout)
        self.told = {entry["name"]: entry.get("value", "") for entry in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
        self.told.update(DSJ_NAMESPACE="ops", DSJ_POD_NAME="operator-1", KUBECONFIG=config, DSJ_WEBHOOK_HOSTS="127.0.0.1",
                         DSJ_METRICS_ADDRESS="")  # beside the health, on a port that nobody else has

    def start(self, webhook):
        """`webhook`: whether it has one. Its Service has no network here: the API server calls it by its address."""
        told, words = dict(self.told), []
        if webhook:
            port = free_port()
            kubectl("patch", "validatingwebhookconfiguration", "r-deepspeedjob-ops", "--type=json", "-p", json.dumps(
                [{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": f"https://127.0.0.1:{port}/validate"}}]))
            words = [f"--webhook-address=127.0.0.1:{port}"]
        else:
            told["DSJ_WEBHOOK"] = ""
        with open(self.log, "ab") as output:
            self.health = f"127.0.0.1:{free_port()}"
            self.process = subprocess.Popen([self.chart.operator, "--health-address=" + self.health, *words],
                                            env=dict(os.environ, **told), stdout=output, stderr=output)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(LONG)
            self.process = None

    # ---- cases
    def submit(self, name, change, dry=False):
        job = merged(merged(GOOD, {"metadata": {"name": name, "namespace": "team"}}), change)
        return kubectl("create", *(["--dry-run=server"] if dry else []), "-f", "-", thing=job, check=False)

    def judge(self, what, stop, word, done):
        """Whether a request ended as it should."""
        if stop == ACCEPTED:
            if done.returncode != 0:
                self.problems.append(f"{what}: not stored: {done.stderr}")
            return
        said = done.stderr
        where = next((name for name, sign in SIGNS.items() if sign in said), CRD)
        if done.returncode == 0 or where != stop or word not in said:
            self.problems.append(f"{what}: expected {stop} with \"{word}\", got {where if said else 'nothing'}: {said}")

    def refused(self, wanted):
        """`wanted`: {job: (what, word)}, each with Accepted=False and this word at last."""
        missing = {}

        def holds():
            missing.clear()
            for job in json.loads(kubectl("-n", "team", "get", "dsj", "-o", "json").stdout)["items"]:
                what, word = wanted.get(job["metadata"]["name"], ("", ""))
                conditions = {entry["type"]: entry for entry in job.get("status", {}).get("conditions", [])}
                accepted = conditions.get("Accepted", {})
                if what and (accepted.get("status") != "False" or word not in accepted.get("message", "") or
                             accepted.get("observedGeneration", job["metadata"]["generation"]) != job["metadata"]["generation"]):
                    missing[what] = f"{word}: {accepted}"
            return not missing
        end = time.monotonic() + LONG
        while not holds() and time.monotonic() < end:
            time.sleep(0.5)
        self.problems += [f"{what}: not refused: {why}" for what, why in missing.items()]

    def pods(self):
        items = json.loads(kubectl("-n", "team", "get", "pods", "-o", "json").stdout)["items"]
        return {entry["metadata"]["name"]: entry["metadata"]["uid"] for entry in items}

    def edits(self, up):
        """Of jobs that run: refused, and nothing of them changes."""
        for i, (what, _, _, _) in enumerate(EDITS):
            made = self.submit(f"edit-{i}", BEFORE_EDITS)
            expect(made.returncode == 0, f"{what}: {made.stderr}")
        eventually(lambda: len(self.pods()) == 2 * len(EDITS), lambda: f"{self.pods()}: {Chart.text(self.log)[-2000:]}")
        before, wanted = self.pods(), {}
        for i, (what, stop, word, change) in enumerate(EDITS):
            stop = ACCEPTED if stop == WEBHOOK and not up else stop
            words = ["scale", f"--replicas={change['scale']}"] if "scale" in change else ["patch", "--type=merge", "-p", json.dumps(change)]
            done = kubectl("-n", "team", *words, "dsj", f"edit-{i}", check=False)
            self.judge(what, stop, word, done)
            if stop == ACCEPTED:
                wanted[f"edit-{i}"] = (what, word)
        self.refused(wanted)
        if self.pods() != before:
            self.problems.append(f"edits changed pods: {before} to {self.pods()}")

    def round(self, up):
        self.problems = []
        self.start(webhook=up)
        if up:  # a new policy and a new bundle take a moment to be in force
            typo = next(case for case in CASES if case[1] == WEBHOOK)
            eventually(lambda: SIGNS[WEBHOOK] in self.submit("probe", typo[3], dry=True).stderr, lambda: Chart.text(self.log)[-2000:])
            foreign = next(case for case in CASES if case[1] == POLICY)
            eventually(lambda: SIGNS[POLICY] in self.submit("probe", foreign[3], dry=True).stderr, lambda: "no policy")
        self.edits(up)
        wanted = {}
        for i, (what, stop, word, change) in enumerate(CASES):
            if not up and stop in (CRD, POLICY):  # the webhook has no part in it
                continue
            stop = ACCEPTED if not up else stop
            name = f"bad-{i}"
            self.judge(what, stop, word, self.submit(name, change))
            if stop == ACCEPTED:
                wanted[name] = (what, word)
        self.refused(wanted)
        kubectl("-n", "team", "delete", "dsj", "--all", "--wait=false")
        eventually(lambda: not self.pods(), lambda: f"left: {self.pods()}")
        if up:
            with urllib.request.urlopen(f"http://{self.health}/metrics", timeout=LONG) as answer:
                found = re.findall(r'^deepspeedjob_webhook_requests_total{allowed="(\w+)"} (\d+)', answer.read().decode(), re.MULTILINE)
            self.counted = {allowed: int(count) for allowed, count in found}
        self.stop()
        expect(not self.problems, f"{len(self.problems)} cases:\n" + "\n".join(self.problems))
        return len(wanted)

    def finish(self):
        self.stop()
        if self.watch:
            self.watch.terminate()
            self.watch.wait()
        shutil.rmtree(self.chart.room, ignore_errors=True)

    # ---- the test's parts
    def the_page_is_current(self):
        with open(PAGE, encoding="utf-8") as file:
            expect(file.read() == page(), "docs/reports/refusals.md is not what refusals_check.py --write prints")
        names = [case[0] for case in CASES + EDITS]
        expect(len(set(names)) == len(names), "two cases of one name")

    def with_the_webhook(self):
        self.install()
        late = self.round(up=True)
        denied = sum(case[1] == WEBHOOK for case in CASES + EDITS)
        expect(self.counted["false"] >= denied, f"{self.counted} reviews counted, {denied} were denied")
        expect(self.counted["true"] >= len(EDITS), f"{self.counted} reviews counted")
        print(f"result: refusals: {len(CASES) + len(EDITS)} bad manifests, {late} of them stored and not accepted, with the webhook up")

    def without_it(self):
        late = self.round(up=False)
        print(f"result: refusals: {late} stored and not accepted with the webhook down")

    def no_pod_ever(self):
        seen = set(Chart.text(os.path.join(self.chart.room, "pods")).split())
        expect(len(seen) >= 2 * len(EDITS), f"the watch saw {seen}")
        expect(not [name for name in seen if "bad-" in name], f"pods of refused jobs: {seen}")


def main():
    if sys.argv[1:] == ["--write"]:
        with open(PAGE, "w", encoding="utf-8") as out:
            out.write(page())
        return 0
    refusals, report = Refusals(sys.argv[1], sys.argv[2]), Report("Refusals", sys.argv[3])
    for case in (refusals.the_page_is_current, refusals.with_the_webhook, refusals.without_it, refusals.no_pod_ever):
        report.run(case.__name__, case, tools=("helm", "kubectl"))
    refusals.finish()
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
