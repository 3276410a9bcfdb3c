#!/usr/bin/env python3
"""Makes tests/fixtures/curriculum.oracle.json: the recorded run golden/curriculum/cl_root2.json once more, by DeepSpeed 0.18.9.

Same configuration, model, rows and two ranks as the record, which lies under DSJ_SHARED_DIR (default: ../shared); without it
nothing is made. Prints the first step at which the record lies elsewhere: its eighth, 1.8e-3 away, while all before agree to 4e-8.
"""
# python: tests/oracle/one_bit_venv.sh
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
NAME = "cl_root2"


def main():
    golden = os.path.join(os.environ.get("DSJ_SHARED_DIR", os.path.join(ROOT, "..", "shared")), "golden")
    record = os.path.join(golden, "curriculum", NAME + ".json")
    if not os.path.exists(record):
        print(f"curriculum_oracle: skipped: {record} is not there", file=sys.stderr)
        return
    with open(record, encoding="utf-8") as file:
        recorded = json.load(file)
    with tempfile.TemporaryDirectory(prefix="dsj-curriculum-") as folder:
        cases = os.path.join(folder, "cases.json")
        with open(cases, "w", encoding="utf-8") as out:
            json.dump({NAME: {key: recorded[key] for key in ("model", "data", "world", "ds_config")}}, out)
        subprocess.run([sys.executable, os.path.join(HERE, "deepspeed_run.py"), cases, "--models", os.path.join(golden, "models"),
                        "-o", folder], check=True)
        with open(os.path.join(folder, "deepspeed_0.18.9", NAME + ".json"), encoding="utf-8") as file:
            run = json.load(file)
    if run["status"] != "ok":
        raise RuntimeError(str(run))
    steps = [{key: step[key] for key in ("loss", "grad_norm", "seqlen")} for step in run["steps"]]
    for number, (ours, theirs) in enumerate(zip(steps, recorded["steps"])):
        away = abs(ours["loss"] / theirs["loss"] - 1)
        if away > 1e-5:
            print(f"step {number}: the record is {away:.1e} away", file=sys.stderr)
            break
    with open(os.path.join(ROOT, "tests", "fixtures", "curriculum.oracle.json"), "w", encoding="utf-8") as out:
        json.dump({"deepspeed": "0.18.9", "runs": {NAME: {"steps": steps}}}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    main()
