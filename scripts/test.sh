#!/usr/bin/env bash
# test.sh DIRECTORY [PATTERN] [--beside-load N]: runs every test program (or those whose name matches PATTERN), cheap ones
# first, and ends with "N passed, N failed, N skipped". DSJ_TEST_DEADLINE (epoch seconds): tests that have not ended by then
# are stopped and printed as NOT RUN, and the run fails. See scripts/run_tests.py.
set -uo pipefail
cd "$(dirname "$0")/.."
exec python3 scripts/run_tests.py "$@"
