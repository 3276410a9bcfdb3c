#!/usr/bin/env python3
"""Whole jobs on three real nodes and what can happen to them and to the cluster: the long list, of `make test-cluster`.

Usage: faults_check.py REPOSITORY BUILD GTEST_REPORT [CASE...], as jobs_check.py. After each case the job is Complete, or what
the case says; no saved step is lost; nothing of the never-list happened (world.Job.judge)."""
import sys

import faults_fetch
import faults_life
import faults_platform
import faults_ranks
import faults_sidecars
import faults_size
import harness

CASES = [faults_platform.installed, *faults_platform.CASES, *faults_ranks.CASES, *faults_size.CASES, *faults_fetch.CASES,
         *faults_life.CASES, *faults_sidecars.CASES, faults_platform.uninstalled]

if __name__ == "__main__":
    sys.exit(harness.main("ClusterFaults", __file__, CASES, nodes=3))
