#!/usr/bin/env python3
"""`dsj init` for every model of tests/fixtures and every preset: `dsj validate` passes what it writes, and `dsj plan` runs.

Usage: init_check.py REPOSITORY BIN GTEST_REPORT. Also where a job is written from elsewhere, and what is refused.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, expect  # noqa: E402

PRESETS = ("full", "lora", "long-rows", "cpu")


class Check:
    def __init__(self, repository, bin_, room):
        self.fixtures = os.path.join(repository, "tests/fixtures")
        self.bin, self.room = bin_, room
        self.rows = os.path.join(room, "rows.json")
        with open(self.rows, "w", encoding="utf-8") as file:
            json.dump([{"input_ids": [1, 2, 3, 4, 5, 6], "labels": [-100, -100, 3, 4, 5, 6]}] * 40, file)

    def dsj(self, *words, code=0, cwd=None, **environment):
        done = subprocess.run([os.path.join(self.bin, "dsj"), *words], capture_output=True, text=True, check=False,
                              cwd=cwd or self.room, env=dict(os.environ, **environment))
        expect(done.returncode == code, f"dsj {' '.join(words)}: {done.returncode} {done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout + done.stderr

    def models(self):
        names = sorted(name for name in os.listdir(self.fixtures) if os.path.isfile(os.path.join(self.fixtures, name, "config.json")))
        expect(len(names) > 20, names)
        return names

    def every_model(self, preset):
        for name in self.models():
            job = os.path.join(self.room, f"{name}-{preset}.yaml")
            self.dsj("init", os.path.join(self.fixtures, name), self.rows, "--preset", preset, "--output", job)
            answer = json.loads(self.dsj("validate", job, "-o", "json"))
            expect(answer["valid"] and not [f for f in answer["findings"] if f["severity"] != "warning"], f"{name}: {answer}")
            expect("step" in self.dsj("plan", job), name)

    def one(self, *words, **options):
        return self.dsj("init", os.path.join(self.fixtures, "tiny-llama"), self.rows, *words, **options)

    def keeps_a_file(self):
        job = os.path.join(self.room, "job.yaml")
        self.one()  # the default name
        with open(job, encoding="utf-8") as file:
            first = file.read()
        expect("the file exists" in self.one("--preset", "lora", code=2), "replaced without --force")
        with open(job, encoding="utf-8") as file:
            expect(file.read() == first, "the file changed")
        self.one("--preset", "lora", "--force")
        with open(job, encoding="utf-8") as file:
            expect("targetModules: all-linear" in file.read(), "not replaced")

    def elsewhere(self):
        """Relative paths, from another directory than the job's."""
        far = os.path.join(self.room, "far away")
        os.makedirs(far, exist_ok=True)
        job = os.path.join(far, "job.yaml")
        self.dsj("init", os.path.relpath(os.path.join(self.fixtures, "tiny-llama"), self.room), "rows.json", "--output", job)
        self.dsj("validate", job, cwd="/")
        # A data file whose name has to be quoted in YAML.
        odd = os.path.join(far, "it's: #1.json")
        os.link(self.rows, odd)
        self.dsj("init", os.path.join(self.fixtures, "tiny-llama"), odd, "--output", job, "--force")
        self.dsj("validate", job, cwd="/")

    def blank(self):
        job = os.path.join(self.room, "blank.yaml")
        for preset in PRESETS:
            said = self.dsj("init", "--preset", preset, "--output", job, "--force")
            expect("fill in MODEL" in said, said)
            self.dsj("validate", "--elsewhere", job)
        self.dsj("init", os.path.join(self.fixtures, "tiny-llama"), "--output", job, "--force", code=2)

    def refuses(self):
        """Nothing is written for what `dsj run` would refuse."""
        model = os.path.join(self.room, "model")
        os.makedirs(model)
        with open(os.path.join(model, "config.json"), "w", encoding="utf-8") as file:
            json.dump({"model_type": "mamba"}, file)
        job = os.path.join(self.room, "none.yaml")
        said = self.dsj("init", model, self.rows, "--output", job, code=2)
        expect("mamba" in said, said)
        said = self.dsj("init", os.path.join(self.fixtures, "tiny-llama"), os.path.join(self.room, "no.json"), "--output", job, code=1)
        expect("no.json" in said, said)
        said = self.one("--preset", "ful", "--output", job, code=2)
        expect('did you mean "full"' in said, said)
        self.one("--ranks", "0", "--output", job, code=2)
        expect(not os.path.exists(job), "it was written")

    def runs(self):
        """What it writes trains: the quickstart's model, tiny, two steps."""
        there = os.path.join(self.room, "quickstart")
        subprocess.run([os.path.join(self.bin, "dsj-make-quickstart"), "--output", there, "--size", "tiny"], check=True,
                       capture_output=True)
        for preset in PRESETS:
            self.dsj("init", "model", "data/train.json", "--preset", preset, "--output", preset + ".yaml", cwd=there)
            self.dsj("run", preset + ".yaml", "--set", "spec.training.maxSteps=2", cwd=there)
            folder = next(name for name in os.listdir(there) if name == "out-" + {"full": "finetune"}.get(preset, preset))
            with open(os.path.join(there, folder, "metrics.jsonl"), encoding="utf-8") as lines:
                steps = [json.loads(line)["step"] for line in lines]
            expect(steps == [1, 2], f"{preset}: {steps}")

    def comments(self):
        """Every field of spec.training has its line; the head names commands that exist."""
        self.one("--output", "commented.yaml")
        with open(os.path.join(self.room, "commented.yaml"), encoding="utf-8") as file:
            text = file.read()
        verbs = re.findall(r"^#   dsj (\w+) commented\.yaml", text, re.MULTILINE)
        expect(verbs == ["validate", "plan", "run"], verbs)


def main():
    repository, bin_ = (os.path.abspath(path) for path in sys.argv[1:3])
    report = Report("Init", sys.argv[3])
    with tempfile.TemporaryDirectory(prefix="dsj-init-") as room:
        check = Check(repository, bin_, room)
        for preset in PRESETS:
            report.run("every_model_" + preset.replace("-", "_"), lambda preset=preset: check.every_model(preset))
        for name in ("keeps_a_file", "elsewhere", "blank", "refuses", "comments", "runs"):
            report.run(name, getattr(check, name))
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
