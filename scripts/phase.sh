#!/usr/bin/env bash
# phase.sh NAME HOW_LONG WHAT COMMAND...: prints what the phase does and how long it takes, runs the command, and prints
# how long it took. Returns the command's exit code, or 130 after Ctrl-C, once the command has ended.
set -uo pipefail
name="$1" how_long="$2" what="$3"; shift 3
say() { printf '[%s] %s\n' "$name" "$*" >&2; }

interrupted=no
trap 'interrupted=yes' INT
say "$what: $how_long"
start=$(date +%s)
"$@"; status=$?
seconds=$(( $(date +%s) - start ))
took="$seconds s"
[ "$seconds" -lt 60 ] || took="$(printf '%d:%02d min' $((seconds / 60)) $((seconds % 60)))"
if [ "$interrupted" = yes ]; then say "stopped after $took"; exit 130; fi
if [ "$status" -ne 0 ]; then say "failed after $took, exit code $status"; exit "$status"; fi
say "done in $took"
