"""The machine that the steps run on: where its torch is, how many GPUs it has, and how our programs start there."""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Callable

import carry

REPOSITORY = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


class Skip(Exception):
    """Raised with the reason why a step cannot run here; not a failure."""


@dataclass
class Step:
    name: str
    proves: str
    seconds: int  # minimum time left to begin it
    run: Callable


def text_of(*words):
    """Returns a program's output, or why there is none."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"{words[0]}: {problem}"
    return (done.stdout or done.stderr).strip()


class Machine:
    def __init__(self, carried):
        if os.path.exists(os.path.join(carried, carry.ARCHIVE)):
            carry.unpack(carried)
        self.bin = os.path.join(carried, "bin")
        self.work = tempfile.mkdtemp(prefix="dsj-gpu-")
        self.log = None  # a file for the whole output of every program
        self.deadline = time.monotonic() + 3600
        self.torch = self._find_torch()
        self.gpus = self._count_gpus()
        libraries = [os.path.join(carried, "lib")]
        if self.torch:
            site = os.path.dirname(self.torch)
            libraries = [os.path.join(self.torch, "lib"), *sorted(glob.glob(os.path.join(site, "nvidia/*/lib"))), *libraries]
        before = os.environ.get("LD_LIBRARY_PATH")
        self.environment = os.environ | {"LD_LIBRARY_PATH": ":".join(libraries + ([before] if before else [])),
                                         "DSJ_SOURCE_DIR": REPOSITORY, "HOME": self.work}

    @staticmethod
    def _find_torch():
        """The folder of this Python's torch, found without loading it."""
        code = "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
        return text_of(sys.executable, "-c", code)

    @staticmethod
    def _count_gpus():
        listed = text_of("nvidia-smi", "-L") if shutil.which("nvidia-smi") else ""
        return sum(line.startswith("GPU ") for line in listed.splitlines())

    def facts(self):
        query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        version = os.path.join(self.torch, "version.py") if self.torch else ""
        torch = "none"
        if os.path.exists(version):
            with open(version, encoding="utf-8") as file:
                torch = " ".join(line.split("=")[-1].strip(" '\n") for line in file if line.startswith("__version__ ="))
        return {"GPUs": text_of(*query) if self.gpus else "none", "torch": torch, "C library": text_of("ldd", "--version").split("\n")[0],
                "processors": os.cpu_count(),
                "commit": text_of("git", "-C", REPOSITORY, "describe", "--always", "--dirty")}

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)

    def need_gpus(self, count=1):
        if self.gpus < count:
            raise Skip(f"NOT RUN: it wants {count} GPU{'s' if count > 1 else ''}, this machine has {self.gpus}")

    def program(self, name):
        path = os.path.join(self.bin, name)
        if not os.path.exists(path):
            raise Skip(f"NOT RUN: {path} is not there (scripts/gpu_prove.sh carry packs it)")
        if not os.access(path, os.X_OK):  # it was copied without its mode
            os.chmod(path, 0o755)
        return path

    def call(self, *words, more=None):
        """Returns the output of a program, which is limited by the deadline, and its exit code."""
        seconds = max(5, self.deadline - time.monotonic() - 5)
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=self.environment | (more or {}),
                                  cwd=self.work)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"{words[0]} did not end within {seconds:.0f} s") from late
        if self.log:
            with open(self.log, "a", encoding="utf-8") as file:  # one write, because programs may run side by side
                file.write(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}exit {done.returncode}\n")
        return done.stdout + done.stderr, done.returncode

    def run(self, *words, more=None, check=True):
        """Returns the output of a program. AssertionError if it failed."""
        said, code = self.call(*words, more=more)
        if check and code != 0:
            raise AssertionError(f"{' '.join(words[:6])} ends with {code}: {said[-1500:]}")
        return said

    def folder(self, name):
        path = os.path.join(self.work, name)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        return path

    def write(self, path, value):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file)
        return path
