#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...]: builds tests/fuzz/*_fuzz.cc with clang's libFuzzer under ASan and UBSan and runs each for
# SECONDS, ${DSJ_FUZZ_JOBS:-2} at a time. Exit 0: no report. 4: clang cannot be had (the reason is printed).
# clang is installed here, not by setup.sh: only fuzzing needs it. DSJ_FUZZ_DIR: where it works (build/fuzz).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds="${1:?usage: fuzz.sh SECONDS [TARGET...]}"; shift
directory="${DSJ_FUZZ_DIR:-build/fuzz}"
jobs="${DSJ_FUZZ_JOBS:-2}"
say() { printf 'fuzz: %s\n' "$*" >&2; }

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
find_clang || { install_clang && find_clang; } || { say "NOT RUN: clang 19 with libFuzzer cannot be installed"; exit 4; }

cmake -S tests/fuzz -B "$directory" -G Ninja -DCMAKE_CXX_COMPILER="$clang" >"$directory.log" 2>&1 ||
  { cat "$directory.log" >&2; exit 1; }
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
fi
ninja -C "$directory" "${targets[@]}" >"$directory.log" 2>&1 || { tail -n 60 "$directory.log" >&2; exit 1; }
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
exit "$failed"
