#!/usr/bin/env python3
"""Agent and ranks under a user that no password file has, in group 0, without HOME and without rights, as OpenShift's restricted-v2
runs a container: whole runs of this engine and of a program of the user's own.

Usage: any_user_check.py REPOSITORY BIN GTEST_REPORT. Exit 1 on a failure. Needs root and setpriv, to become that user; else it is
skipped, loudly.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from cases import Report, expect  # noqa: E402
from stranger import SHOWN, Stranger  # noqa: E402

OWN = """#!/bin/sh
echo "rank $RANK of $WORLD_SIZE as $(id -u):$(id -g), HOME is ${HOME-unset}"
"""


class AnyUser:
    """Whole runs in a room that the group 0 may write."""

    def __init__(self, repository, binaries):
        self.binaries = os.path.abspath(binaries)
        # As a volume that OpenShift prepares: the group 0 may write.
        self.room = tempfile.mkdtemp()
        os.chmod(self.room, 0o770)
        os.chown(self.room, 0, 0)
        shown = {"room": self.room, "bin": self.binaries, "model": os.path.join(os.path.abspath(repository), "tests/fixtures/tiny-llama")}
        self.stranger = Stranger(shown | {f"lib{i}": folder for i, folder in enumerate(self.libraries())})
        self.uid = self.stranger.uid
        with open(os.path.join(self.room, "rows.json"), "w", encoding="utf-8") as file:
            json.dump([{"input_ids": [1, 2, 3, 4, 5, 6], "labels": [-100, -100, 3, 4, 5, 6]}] * 40, file)
        os.chmod(file.name, 0o640)

    def libraries(self):
        """The folders of libtorch and of what it needs, but for the system's."""
        found = subprocess.run(["ldd", os.path.join(self.binaries, "dsj-train")], capture_output=True, text=True, check=False).stdout
        paths = [line.split()[2] for line in found.splitlines() if "=> /" in line]
        folders = {os.path.dirname(os.path.realpath(path)) for path in paths} | {os.path.dirname(path) for path in paths}
        return sorted(folder for folder in folders if not folder.startswith(("/lib", "/usr/lib")))

    def run(self, *arguments):
        libraries = ":".join(f"{SHOWN}/{name}" for name in self.stranger.shown if name.startswith("lib"))
        done = subprocess.run([*self.stranger.command("room"), f"{SHOWN}/bin/dsj", *arguments], capture_output=True, text=True, check=False,
                              env=self.stranger.environment(OMP_NUM_THREADS="1", LD_LIBRARY_PATH=libraries))
        expect(done.returncode == 0, f"dsj {' '.join(arguments)} as {self.uid}: {done.returncode} {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout + done.stderr

    def job(self, name, spec):
        path = os.path.join(self.room, name + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {"name": name}, "spec": spec}, file)
        os.chmod(path, 0o640)
        return f"{SHOWN}/room/{name}.yaml"

    def trains(self):
        out = os.path.join(self.room, "out")
        spec = {"deepspeed": {"config": {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
                                         "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}},
                "training": {"modelNameOrPath": f"{SHOWN}/model", "dataPath": f"{SHOWN}/room/rows.json", "outputDir": f"{SHOWN}/room/out",
                             "maxSteps": 3, "saveStrategy": "no"},
                "workers": {"replicas": 1, "slotsPerWorker": 2}}
        self.run("run", self.job("trains", spec))
        made = [os.path.join(folder, name) for folder, _, names in os.walk(out) for name in names]
        expect(any(path.endswith(".safetensors") for path in made), made)
        foreign = [path for path in made if (os.stat(path).st_uid, os.stat(path).st_gid) != (self.uid, 0)]
        expect(not foreign, f"of another user: {foreign}")

    def runs_an_own_program(self):
        program = os.path.join(self.room, "train.sh")
        with open(program, "w", encoding="utf-8") as file:
            file.write(OWN)
        os.chmod(program, 0o750)
        container = {"name": "worker", "image": "none", "command": [f"{SHOWN}/room/train.sh"]}
        spec = {"launcher": "Command", "training": {"outputDir": f"{SHOWN}/room/own"},
                "workers": {"replicas": 1, "slotsPerWorker": 2, "template": {"spec": {"containers": [container]}}}}
        self.run("run", self.job("own", spec))
        logs = ""
        for folder, _, names in os.walk(os.path.join(self.room, "own")):
            for name in names:
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                    logs += file.read()
        for rank in (0, 1):
            expect(f"rank {rank} of 2 as {self.uid}:0, HOME is unset" in logs, logs[-2000:])


def main():
    check, report = AnyUser(sys.argv[1], sys.argv[2]), Report("AnyUser", sys.argv[3])
    for case in (check.trains, check.runs_an_own_program):
        report.run(case.__name__, case)
    shutil.rmtree(check.room, ignore_errors=True)
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
