#!/usr/bin/env bash
# test.sh DIRECTORY [PATTERN]: runs every test program (whose name has PATTERN), cheap ones first, and ends with "N passed, N failed, N skipped".
# DSJ_TEST_DEADLINE (epoch seconds): a program that would start after it is printed as NOT RUN and fails the run.
set -uo pipefail
cd "$(dirname "$0")/.."
exec python3 scripts/run_tests.py "$@"
