#!/usr/bin/env python3
"""A test program on an API server where all addresses are of IPv6.

Usage: ipv6_check.py PROGRAM GTEST_REPORT. Where this machine lacks ::1 it is skipped, loudly. Exit 1 on a failure.
"""
import os
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../support"))
from cases import Report  # noqa: E402


def main():
    program, path = sys.argv[1:]
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError as problem:
        report = Report("Ipv6", path)
        report.skipped(os.path.basename(program), f"this machine has no ::1: {problem}")
        return report.write()
    return subprocess.run([os.path.join(HERE, "cluster.py"), "run", "--api", program, f"--gtest_output=json:{path}"],
                          env=dict(os.environ, DSJ_CLUSTER_FAMILY="ipv6", APISERVER_FLAGS="--etcd-compaction-interval=5s"), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
