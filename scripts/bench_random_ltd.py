#!/usr/bin/env python3
"""Measures what random-LTD saves: tokens per second with half the tokens dropped in the middle layers, and without dropping.

Usage: bench_random_ltd.py [--bin build/bin] [--write PAGE]
Runs bench_random_ltd, which measures both in turn in one process and describes the setting. Compare the ratio.
--write: writes the figures between the marks of a page (docs/reports/performance.md), with the processor and the load.
"""
import argparse
import os
import re
import subprocess
import sys

from bench_train import ROOT, processor, write

SAID = re.compile(r": (\d+) tokens/s, without (\d+), ratio ([\d.]+)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--write")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    done = subprocess.run([os.path.join(options.bin, "bench_random_ltd")], check=True, capture_output=True, text=True)
    print(done.stdout, end="", flush=True)
    found = SAID.search(done.stdout)
    if not found:
        sys.exit("bench_random_ltd: the program says nothing that can be read")
    if options.write:
        write(options.write, "bench_random_ltd.py", [
            f"{processor()}; load average {before:.1f} at the start.", "",
            "| layers 2 to 9 of 10 see | tokens/s | ratio |", "|---|---|---|",
            f"| every token | {found[2]} | |", f"| half the tokens | {found[1]} | {found[3]} |"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
