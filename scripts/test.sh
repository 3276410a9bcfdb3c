#!/usr/bin/env bash
# test.sh DIRECTORY [PATTERN] [--beside-load N]: runs every test program (whose name has PATTERN), cheap ones first, and
# ends with "N passed, N failed, N skipped". DSJ_TEST_DEADLINE (epoch seconds): what has not ended by then is stopped,
# printed as NOT RUN and fails the run. scripts/run_tests.py has the rest.
set -uo pipefail
cd "$(dirname "$0")/.."
exec python3 scripts/run_tests.py "$@"
