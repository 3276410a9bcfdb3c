#!/usr/bin/env python3
"""Compares GB/s of collectives between two hosts: one ring of all ranks, and the two levels of backend auto.

Usage: bench_levels.py [--bin build/bin] [--rates 1000,100] [--each 2] [--mib 32]
The hosts are two network and PID namespaces with one link, which tc limits to each rate (Mbit/s, in each direction).
Each has --each ranks, which share memory; every rank has one thread. Both algorithms run in turn in the same processes.
The table also shows the bytes that all ranks send over connections in one operation: in the ring, ranks of one host
are connected too. comm_tests (Levels) counts the bytes between hosts. Needs root, ip, tc and unshare, and says so if
one is missing.
"""
import argparse
import os
import shutil
import subprocess
import sys

from bench_slow_link import ADDRESS, Link


def run(options, link):
    """Starts the ranks of both hosts with this process's output. Exits if one fails."""
    world = 2 * options.each
    hosts = []
    for host in range(2):
        ranks = [f"RANK={host * options.each + place} {options.program} {options.mib}" for place in range(options.each)]
        script = "".join(f"{rank} & pids=\"$pids $!\"; " for rank in ranks)
        script += "code=0; for pid in $pids; do wait $pid || code=1; done; exit $code"
        environment = dict(os.environ, WORLD_SIZE=str(world), MASTER_ADDR=ADDRESS[0], OMP_NUM_THREADS="1")
        hosts.append(subprocess.Popen(link.inside(host, ["sh", "-c", script]), env=environment))
    try:
        codes = [host.wait(timeout=600) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            host.wait()
    if any(codes):
        sys.exit("bench_levels: a rank failed")


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(root, "build", "bin"))
    parser.add_argument("--rates", default="1000,100")
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--mib", type=int, default=32)
    options = parser.parse_args()
    options.program = os.path.join(os.path.abspath(options.bin), "bench_comm_levels")
    lacking = [tool for tool in ("ip", "tc", "unshare") if shutil.which(tool) is None]
    if os.geteuid() != 0 or lacking:
        print("bench_levels: skipped: needs root, ip, tc and unshare" + (f"; not found: {lacking}" if lacking else ""))
        return 0
    with Link() as link:
        for rate in [int(rate) for rate in options.rates.split(",")]:
            link.hold(rate)
            print(f"2 hosts of {options.each} ranks, {options.mib} MiB, {rate} Mbit/s, {link.measured(rate):.0f} as "
                  f"one TCP connection measures it, load average {os.getloadavg()[0]:.1f}", flush=True)
            run(options, link)
    return 0


if __name__ == "__main__":
    sys.exit(main())
