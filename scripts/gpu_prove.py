#!/usr/bin/env python3
"""Runs the steps of scripts/gpu_prove.sh on a machine with a GPU, in order and with a time limit.

Usage: gpu_prove.py carry [BUILD] | list | tests OUT | bench OUT      [--minutes M] [--carried .gpu] [--only WORD]...

Each step is ok, FAILED, skipped (with the reason) or NOT RUN (no time was left). Exit 1 after a failure. OUT gets a Markdown
table, a JSON file and a log of what every program printed. The machine needs only Python, its torch, the driver and the
contents of .gpu.
"""
import argparse
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_prove_parts"))
import bench_steps  # noqa: E402
import carry  # noqa: E402
import test_steps  # noqa: E402
from machine import Machine, Skip  # noqa: E402

PARTS = {"tests": test_steps.STEPS, "bench": bench_steps.STEPS}
MINUTES = 9.3  # time limit of a call


def run_step(step, machine, deadline):
    """Runs a step and returns its row."""
    begin = time.monotonic()
    left = deadline - begin
    row = {"step": step.name, "proves": step.proves, "result": "ok", "said": "", "figures": {}}
    if left < step.seconds:
        row |= {"result": "NOT RUN", "said": f"{left:.0f} s left, it wants {step.seconds}"}
        return row
    machine.deadline = deadline
    try:
        row["figures"] = step.run(machine) or {}
    except Skip as reason:
        row |= {"result": "skipped", "said": str(reason)}
    except Exception as problem:  # noqa: BLE001: every step is reported
        row |= {"result": "FAILED", "said": f"{type(problem).__name__}: {problem}"[-2000:]}
    row["seconds"] = round(time.monotonic() - begin, 1)
    return row


def cell(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def markdown(part, facts, rows):
    lines = [f"# GPU: {part}", "", *(f"- {name}: {cell(value)}" for name, value in facts.items()), "",
             "| step | result | s | figures |", "|---|---|---|---|"]
    for row in rows:
        figures = ", ".join(f"{name} {value}" for name, value in row["figures"].items()) or row["said"]
        lines.append(f"| {row['step']} | {row['result']} | {row.get('seconds', '')} | {cell(figures)} |")
    return "\n".join(lines) + "\n"


def write(out, part, facts, rows):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, f"gpu_{part}.json"), "w", encoding="utf-8") as file:
        json.dump({"part": part, "machine": facts, "steps": rows}, file, indent=1)
    with open(os.path.join(out, f"gpu_{part}.md"), "w", encoding="utf-8") as file:
        file.write(markdown(part, facts, rows))


def prove(part, options):
    deadline = time.monotonic() + 60 * options.minutes
    machine = Machine(options.carried)
    os.makedirs(options.out, exist_ok=True)
    machine.log = os.path.join(options.out, f"gpu_{part}.log")
    facts, rows = machine.facts(), []
    for step in PARTS[part]:
        if options.only and not any(word in step.name for word in options.only):
            continue
        rows.append(run_step(step, machine, deadline))
        said = rows[-1]["said"] or json.dumps(rows[-1]["figures"])
        print(f"{rows[-1]['result']:8} {step.name}: {cell(said)[:400]}", flush=True)
        write(options.out, part, facts, rows)  # written after each step, in case the time runs out
    machine.close()
    failed = [row["step"] for row in rows if row["result"] == "FAILED"]
    done = sum(row["result"] == "ok" for row in rows)
    print(f"result: gpu_prove {part}: {done} ok, {len(failed)} failed, {len(rows) - done - len(failed)} not run or skipped")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["carry", "list", *PARTS])
    parser.add_argument("out", nargs="?", default="")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--carried", default=os.path.join(carry.REPOSITORY, ".gpu"))
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    if options.part == "carry":
        return carry.pack(options.out or os.path.join(carry.REPOSITORY, "build"), options.carried)
    if options.part == "list":
        for part, steps in PARTS.items():
            print(f"{part}: {len(steps)} steps")
            for step in steps:
                print(f"  {step.name}: {step.proves} (not begun with less than {step.seconds} s left)")
        return 0
    if not options.out:
        parser.error("where to write: gpu_prove.py tests OUT")
    return prove(options.part, options)


if __name__ == "__main__":
    sys.exit(main())
