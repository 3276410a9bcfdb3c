#!/usr/bin/env python3
"""Makes tests/fixtures/elasticity.oracle.json: what DeepSpeed's elasticity solver answers, for the documented examples
and for 1,000 drawn sections.

Run by scripts/oracle.sh. 0.19.7 is the last release with the solver. Its package needs torch; the solver's own modules
do not, so they are loaded alone from the source archive. Everything else follows from the seed below.
"""
# requires: numpy==2.4.6 packaging==26.0 setuptools==80.9.0
import glob
import importlib
import json
import logging
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import types

RELEASE = "0.19.7"
HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(os.path.dirname(HERE), "fixtures", "elasticity.oracle.json")
KEYS = ("version", "max_train_batch_size", "micro_batch_sizes", "min_gpus", "max_gpus", "num_gpus_per_node",
        "model_parallel_size", "prefer_larger_batch")
# (section without its defaults, world size)
DOCUMENTED = [
    ({"version": 0.1, "max_train_batch_size": 10000, "micro_batch_sizes": [8, 12, 16, 17], "min_gpus": 32,
      "max_gpus": 1500}, 64),
    ({"version": 0.1, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6]}, 4),
    ({"version": 0.1, "max_train_batch_size": 24, "micro_batch_sizes": [4, 6], "max_gpus": 8}, 3),
    ({"version": 0.1, "max_train_batch_size": 8, "micro_batch_sizes": [2, 4]}, 2),
    ({"version": 0.1, "max_train_batch_size": 8, "micro_batch_sizes": [2, 4]}, 3),
    ({"version": 0.2, "max_train_batch_size": 10000, "micro_batch_sizes": [8, 12, 16, 17], "min_gpus": 32,
      "max_gpus": 1500, "num_gpus_per_node": 8}, 64),
    ({"version": 0.2, "max_train_batch_size": 64, "micro_batch_sizes": [2, 4], "num_gpus_per_node": 4,
      "model_parallel_size": 2}, 12),
    ({"version": 0.2, "max_train_batch_size": 64, "micro_batch_sizes": [2, 4], "num_gpus_per_node": 4,
      "model_parallel_size": 2}, 20),
]
DEFAULTS = {"version": 0.2, "min_gpus": 1, "max_gpus": 10000, "num_gpus_per_node": 1, "model_parallel_size": 1,
            "prefer_larger_batch": True}


def solver(folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "deepspeed",
                    f"deepspeed=={RELEASE}", "-d", folder], check=True, env={**os.environ, "DS_BUILD_OPS": "0"})
    with tarfile.open(glob.glob(os.path.join(folder, "*.tar.gz"))[0]) as archive:
        archive.extractall(folder, filter="data")
    package = os.path.join(folder, f"deepspeed-{RELEASE}", "deepspeed")
    for name, path, content in (("deepspeed", package, {}),
                                ("deepspeed.elasticity", os.path.join(package, "elasticity"), {}),
                                ("deepspeed.utils", None, {"logger": logging.getLogger("elasticity")}),
                                ("deepspeed.git_version_info", None, {"version": RELEASE})):
        module = types.ModuleType(name)
        module.__path__ = [path] if path else []
        module.__dict__.update(content)
        sys.modules[name] = module
    return importlib.import_module("deepspeed.elasticity.elasticity")


def draw(generator):
    per_node = generator.choice([1, 1, 2, 4, 8])
    version = generator.choice([0.1, 0.2])
    section = {
        "version": version,
        "max_train_batch_size": generator.choice([generator.randint(1, 100), generator.randint(100, 3000),
                                                  generator.randint(3000, 60000)]),
        "micro_batch_sizes": [generator.randint(1, generator.choice([4, 20, 64]))
                              for _ in range(generator.randint(1, 5))],
        "min_gpus": generator.choice([1, 1, generator.randint(1, 64)]),
        "num_gpus_per_node": per_node,
        "model_parallel_size": generator.choice([1, 1, 1, 2, 4]) if version == 0.2 else 1,
        "prefer_larger_batch": generator.random() < 0.7,
    }
    section["max_gpus"] = generator.choice([10000, section["min_gpus"] + generator.randint(0, 500)])
    return section


def fnv(numbers):
    value = 0xcbf29ce484222325
    for byte in ",".join(str(number) for number in numbers).encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return f"{value:016x}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        deepspeed = solver(folder)

    def ask(section, world):
        try:
            batch, sizes, micro = deepspeed.compute_elastic_config(
                {"elasticity": {"enabled": True, **section}}, RELEASE, world_size=world)
            return {"batch": int(batch), "micro": int(micro), "sizes": [int(size) for size in sizes]}
        except (deepspeed.ElasticityError, ValueError, AssertionError, TypeError) as error:
            return {"error": type(error).__name__}

    documented = [{"section": section, "world": world, **ask(section, world)} for section, world in DOCUMENTED]
    generator = random.Random(1807)
    drawn = []
    for _ in range(1000):
        section = draw(generator)
        # Half of the sections are asked at a world size of their own list.
        world = generator.randint(1, 96)
        answer = ask(section, world)
        if generator.random() < 0.5:
            for other in generator.sample(range(1, 97), 96):
                answer_there = ask(section, other)
                if "error" not in answer_there:
                    world, answer = other, answer_there
                    break
        row = [section[key] for key in KEYS] + [world]
        drawn.append(row + ([answer["error"]] if "error" in answer else
                            [answer["batch"], answer["micro"], len(answer["sizes"]), fnv(answer["sizes"])]))
    with open(OUT, "w", encoding="utf-8") as file:
        file.write('{"release": "%s", "defaults": %s,\n "documented": [\n%s],\n "keys": %s,\n "drawn": [\n%s]}\n' % (
            RELEASE, json.dumps(DEFAULTS), ",\n".join(json.dumps(row) for row in documented), json.dumps(KEYS),
            ",\n".join(json.dumps(row, separators=(",", ":")) for row in drawn)))


if __name__ == "__main__":
    main()
