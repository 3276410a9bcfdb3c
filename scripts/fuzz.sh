#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]: builds tests/fuzz/*_fuzz.cc with clang's libFuzzer under ASan and UBSan and runs each for
# SECONDS, ${DSJ_FUZZ_JOBS:-2} at a time. Exit 0: no report. 4: clang cannot be had (the reason is printed).
# clang is installed here, not by setup.sh: only fuzzing needs it. DSJ_FUZZ_DIR: where it works (build/fuzz).
# DSJ_FUZZ_REPORT=FILE: the verdicts also as a GoogleTest report, for run_tests.py; without clang it says skipped, exit 0.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:?usage: fuzz.sh SECONDS [TARGET...]}"; shift
directory="${DSJ_FUZZ_DIR:-build/fuzz}"
jobs="${DSJ_FUZZ_JOBS:-2}"
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

find_clang() {  # <expected> of libstdc++ needs the concepts of clang 19
  local version
  for version in 21 20 19; do
    if command -v "clang++-$version" >/dev/null; then clang="clang++-$version"; return 0; fi
  done
  return 1
}
install_clang() {
  local sudo="" version=19
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { say "clang is missing and there is neither root nor sudo"; return 1; }
    sudo="sudo -n"
  fi
  say "installing clang-$version"
  $sudo apt-get update -qq || return 1
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "clang-$version" \
    "libclang-rt-$version-dev" >/dev/null || return 1
}
if ! find_clang && ! { install_clang && find_clang; }; then
  say "SKIPPED, NOT RUN: clang 19 with libFuzzer cannot be installed; no reader was fuzzed"
  write_report fuzz:skipped
  [ -n "${DSJ_FUZZ_REPORT:-}" ] && exit 0
  exit 4
fi
mkdir -p "$directory"

cmake -S tests/fuzz -B "$directory" -G Ninja -DCMAKE_CXX_COMPILER="$clang" >"$directory/build.log" 2>&1 ||
  { cat "$directory/build.log" >&2; exit 1; }
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
fi
ninja -C "$directory" -j "$jobs" "${targets[@]}" >"$directory/build.log" 2>&1 ||
  { tail -n 60 "$directory/build.log" >&2; exit 1; }
python3 tests/fuzz/seeds.py "$directory/seeds"

run_one() {
  local target="$1" corpus="$directory/corpus/$1" log="$directory/$1.log" code=0
  mkdir -p "$corpus" "$directory/found"
  local dictionary=()
  if [ -e "tests/fuzz/$target.dict" ]; then dictionary=(-dict="tests/fuzz/$target.dict"); fi
  ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
    "$directory/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 -print_final_stats=1 \
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

failed=0 running=0
for target in "${targets[@]}"; do
  if [ "$running" -ge "$jobs" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  run_one "$target" &
  running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
verdicts=()
for target in "${targets[@]}"; do verdicts+=("$(cat "$directory/$target.verdict")"); done
write_report "${verdicts[@]}"
exit "$failed"
