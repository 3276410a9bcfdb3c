#!/usr/bin/env python3
"""The chart's alerts and dashboards: promtool takes every expression and runs the alerts' unit tests, every metric that they ask
for exists, and docs/operate.md lists the same alerts.

Usage: monitoring_check.py REPOSITORY GTEST_REPORT. Exit 1 on a failure. promtool comes from scripts/setup.sh; without it what
needs it is skipped, loudly.
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, Skip, expect  # noqa: E402

CACHE = os.environ.get("DSJ_CACHE", os.path.expanduser("~/.cache/dsj"))
SUFFIXES = re.compile(r"_(bucket|count|sum)$")  # of a histogram


class Monitoring:
    def __init__(self, repository):
        self.repository = repository
        self.files = os.path.join(repository, "charts/deepspeedjob/files")
        self.alerts = self.text("charts/deepspeedjob/files/alerts.yaml")
        self.dashboards = {os.path.basename(path): json.loads(self.text(path))
                           for path in sorted(glob.glob(os.path.join(self.files, "dashboards/*.json")))}

    def text(self, path):
        with open(os.path.join(self.repository, path), encoding="utf-8") as file:
            return file.read()

    @staticmethod
    def promtool(*words, folder):
        tool = shutil.which("promtool", path=os.path.join(CACHE, "promtool") + os.pathsep + os.environ["PATH"])
        if not tool:
            raise Skip("promtool is not there (DSJ_SETUP_CLUSTER=1 scripts/setup.sh fetches it)")
        done = subprocess.run([tool, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        expect(done.returncode == 0, f"promtool {' '.join(words)}:\n{done.stdout}")
        return done.stdout

    def alerts_fire(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(self.files, "alerts.yaml"), folder)
            shutil.copy(os.path.join(self.repository, "tests/run/alerts_test.yaml"), folder)
            self.promtool("check", "rules", "alerts.yaml", folder=folder)
            self.promtool("test", "rules", "alerts_test.yaml", folder=folder)
        tests = self.text("tests/run/alerts_test.yaml")
        for name in self.names():
            fired = re.search(rf"alertname: {name}\n\s+exp_alerts:\n", tests)
            silent = re.search(rf"alertname: {name}, exp_alerts: \[\]", tests)
            expect(fired and silent, f"{name}: one test must fire it, and one must not")
        print(f"result: monitoring: {len(self.names())} alerts, each fires and is silent in promtool's tests")

    def names(self):
        return re.findall(r"^\s+- alert: (\w+)$", self.alerts, re.MULTILINE)

    def expressions(self):
        """(where, PromQL) of every panel and alert."""
        for name, board in self.dashboards.items():
            for panel in board["panels"]:
                for target in panel["targets"]:
                    yield f"{name}: {panel['title']}", target["expr"].replace("$job_name", "job")
        for expression in re.findall(r"^\s+expr: (.*)$", self.alerts, re.MULTILINE):
            yield "alerts.yaml", expression

    def expressions_parse(self):
        rules = [{"record": f"r{number}", "expr": expression} for number, (_, expression) in enumerate(self.expressions())]
        expect(len(rules) > 30, f"{len(rules)} expressions")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "all.yaml"), "w", encoding="utf-8") as file:
                json.dump({"groups": [{"name": "all", "rules": rules}]}, file)  # JSON is YAML
            self.promtool("check", "rules", "all.yaml", folder=folder)

    def metrics_exist(self):
        made = set(re.findall(r'(?:counters|gauges|histogram)\(\s*registry_,\s*"(\w+)"', self.text("operator/serve/metrics.cc")))
        expect(len(made) > 15, f"operator/serve/metrics.cc makes {sorted(made)}")
        agent = set(re.findall(r'(?:gauge|counter)\("(\w+)"', self.text("agent/status/agent_metrics.cc")))
        expect(len(agent) > 10, f"agent_metrics.cc makes {sorted(agent)}")
        made |= agent
        for where, expression in self.expressions():
            for name in re.findall(r"deepspeedjob_(\w+)", expression):
                expect(name in made or SUFFIXES.sub("", name) in made, f"{where}: nobody makes deepspeedjob_{name}")

    def page_agrees(self):
        listed = re.findall(r"^\| `(DeepSpeedJob\w+)` \|", self.text("docs/operate.md"), re.MULTILINE)
        expect(sorted(listed) == sorted(self.names()), f"docs/operate.md lists {listed}, alerts.yaml has {self.names()}")

    def boards_are_whole(self):
        expect(sorted(self.dashboards) == ["job.json", "operator.json"], self.dashboards.keys())
        for name, board in self.dashboards.items():
            ids = [panel["id"] for panel in board["panels"]]
            expect(len(set(ids)) == len(ids), f"{name}: two panels with one id")
            cells = set()
            for panel in board["panels"]:
                at = panel["gridPos"]
                mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
                expect(not mine & cells and at["x"] + at["w"] <= 24, f"{name}: {panel['title']} lies on another panel")
                cells |= mine
            variables = {variable["name"] for variable in board["templating"]["list"]}
            used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"])))
            expect(used <= variables, f"{name}: {used - variables} is no variable")


def main():
    monitoring, report = Monitoring(sys.argv[1]), Report("Monitoring", sys.argv[2])
    for case in (monitoring.alerts_fire, monitoring.expressions_parse, monitoring.metrics_exist, monitoring.page_agrees,
                 monitoring.boards_are_whole):
        report.run(case.__name__, case)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
