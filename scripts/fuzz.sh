#!/usr/bin/env bash
# Fuzzes tests/fuzz/*_fuzz.cc with clang's libFuzzer under ASan and UBSan.
#   fuzz.sh build [TARGET...]         builds the targets; installs clang if it is missing
#   fuzz.sh run SECONDS [TARGET...]   runs built targets, each for SECONDS (reconcile_fuzz for at least a minute),
#                                     ${DSJ_FUZZ_JOBS:-2} at a time
#   fuzz.sh SECONDS [TARGET...]       both
# Exit 0: no report. 1: a sanitizer's report, or a target does not build. 4: nothing ran because clang cannot be installed
# (`build` prints why and `run` fails). DSJ_FUZZ_DIR: working directory (build/fuzz). DSJ_FUZZ_REPORT=FILE: also writes a
# GoogleTest report for run_tests.py; without clang it says skipped, exit 0. JOBS: number of compilers (all cores).
set -euo pipefail
cd "$(dirname "$0")/.."
directory="${DSJ_FUZZ_DIR:-build/fuzz}"
jobs="${DSJ_FUZZ_JOBS:-2}"
export CCACHE_DIR="${CCACHE_DIR:-${DSJ_CACHE:-$HOME/.cache/dsj}/ccache}"
no_clang="$directory/no-clang"  # exists after a build without clang
say() { printf 'fuzz: %s\n' "$*" >&2; }

write_report() {  # write_report NAME:VERDICT...
  [ -n "${DSJ_FUZZ_REPORT:-}" ] || return 0
  python3 -c '
import json, sys
cases = []
for name, verdict in (word.split(":") for word in sys.argv[2:]):
    cases.append({"name": name, "result": "SKIPPED" if verdict == "skipped" else "COMPLETED"})
    if verdict == "failed":
        cases[-1]["failures"] = [{"failure": "see the log"}]
json.dump({"testsuites": [{"testsuite": cases}]}, open(sys.argv[1], "w"))' "$DSJ_FUZZ_REPORT" "$@"
}

build() {
  mkdir -p "$directory"
  rm -f "$no_clang"
  local clang
  if ! clang="$(scripts/clang.sh install)"; then
    say "clang 19 with libFuzzer cannot be installed: no reader will be fuzzed"
    touch "$no_clang"
    return 0
  fi
  cmake -S tests/fuzz -B "$directory" -G Ninja -DCMAKE_CXX_COMPILER="$clang" >"$directory/build.log" 2>&1 ||
    { cat "$directory/build.log" >&2; return 1; }
  ninja -C "$directory" -j "${JOBS:-$(scripts/jobs.sh compilers)}" "$@" >"$directory/build.log" 2>&1 ||
    { tail -n 60 "$directory/build.log" >&2; return 1; }
}

run_one() {  # run_one SECONDS TARGET
  local seconds="$1" target="$2" corpus="$directory/corpus/$2" log="$directory/$2.log" code=0
  # It simulates whole jobs, so an input takes milliseconds.
  if [ "$target" = reconcile_fuzz ] && [ "$seconds" -lt 60 ]; then seconds=60; fi
  mkdir -p "$corpus" "$directory/found"
  local dictionary=()
  if [ -e "tests/fuzz/$target.dict" ]; then dictionary=(-dict="tests/fuzz/$target.dict"); fi
  # -timeout: wall-clock limit of one input; far more than any takes on a busy machine.
  ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
    "$directory/$target" -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="$directory/found/$target-" "${dictionary[@]}" "$corpus" "$directory/seeds/$target" \
    >"$log" 2>&1 || code=$?
  local runs cover
  runs="$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")"
  cover="$(grep -o 'cov: [0-9]*' "$log" | tail -n1)"
  echo "$target:$([ "$code" -eq 0 ] && echo ok || echo failed)" >"$directory/$target.verdict"
  if [ "$code" -eq 0 ]; then
    printf 'ok      %s: %s inputs in %s s, %s\n' "$target" "${runs:-?}" "$seconds" "${cover:-cov: ?}"
  else
    printf 'FAILED  %s: exit %s after %s inputs; see %s\n' "$target" "$code" "${runs:-?}" "$log"
    grep -m3 -E 'ERROR|SUMMARY|runtime error' "$log" || tail -n5 "$log"
    return 1
  fi
}

run() {  # run SECONDS TARGET...
  local seconds="$1" target failed=0 running=0 verdicts=()
  shift
  if [ -e "$no_clang" ]; then
    say "SKIPPED, NOT RUN: there is no clang 19 with libFuzzer; no reader was fuzzed"
    write_report fuzz:skipped
    [ -n "${DSJ_FUZZ_REPORT:-}" ] && return 0
    return 4
  fi
  for target in "$@"; do
    [ -x "$directory/$target" ] || { say "$directory/$target is not built: scripts/fuzz.sh build"; return 1; }
    rm -f "$directory/$target.verdict"
  done
  python3 tests/fuzz/seeds.py "$directory/seeds"
  for target in "$@"; do
    if [ "$running" -ge "$jobs" ]; then
      wait -n || failed=1
      running=$((running - 1))
    fi
    run_one "$seconds" "$target" &
    running=$((running + 1))
  done
  while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
  done
  for target in "$@"; do verdicts+=("$(cat "$directory/$target.verdict")"); done
  write_report "${verdicts[@]}"
  return "$failed"
}

usage() { sed -n '3,6s/^# *//p' "$0" >&2; exit 2; }

verb=both seconds=""
case "${1:-}" in
  build | run) verb="$1"; shift ;;
esac
if [ "$verb" != build ]; then
  [[ "${1:-}" =~ ^[0-9]+$ ]] || usage
  seconds="$1"; shift
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
fi
[ "$verb" = run ] || build "${targets[@]}"
[ "$verb" = build ] || run "$seconds" "${targets[@]}"
