#!/usr/bin/env bash
# phase.sh NAME BUDGET_MINUTES COMMAND...: runs it and prints the minutes it took beside its budget.
set -uo pipefail
name="$1" budget="$2"; shift 2
start=$(date +%s)
"$@"; status=$?
seconds=$(( $(date +%s) - start ))
awk -v n="$name" -v s="$seconds" -v b="$budget" 'BEGIN { printf "phase %s: %.1f min (budget %d min on two cores, empty caches)\n", n, s / 60, b }' >&2
exit $status
