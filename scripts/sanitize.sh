#!/usr/bin/env bash
# sanitize.sh [address|thread]...: builds all code without libtorch under ASan + UBSan, and all code with threads under
# TSan, and runs their unit tests; both without an argument. Exit 0: no report, and every test passes.
# DSJ_SANITIZE_DIR: working directory (build/sanitize). DSJ_SANITIZE_TESTS: a pattern of programs instead of all.
# DSJ_SEEDS: number of seeds of the operator's simulation (200).
set -euo pipefail
cd "$(dirname "$0")/.."
directory="${DSJ_SANITIZE_DIR:-build/sanitize}"
threads='^(common|files|http|kube|operator|webhook|agent|aio|observe|checkpoint|cli_cluster)_tests$'
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}"
export DSJ_SEEDS="${DSJ_SEEDS:-200}" GTEST_FILTER="-PlantedBugs.*"  # they run the same code with thousands of seeds

targets_of() {  # targets_of BUILD PATTERN
  (cd "$1" && ctest --show-only=json-v1) | python3 -c '
import json, re, sys
print("\n".join(test["name"] for test in json.load(sys.stdin)["tests"] if re.search(sys.argv[1], test["name"])))' "$2"
}

failed=0
for kind in "${@:-address thread}"; do
  for one in $kind; do
    case $one in
      address) sanitizers=address,undefined pattern='_tests$' without='' ;;
      # A forked child of a program with threads hangs under TSan.
      thread) sanitizers=thread pattern=$threads without=':Death.*:BackgroundSaveDeathTest.*' ;;
      *) echo "sanitize.sh: $one is neither address nor thread" >&2; exit 2 ;;
    esac
    build="$directory/$one"; mkdir -p "$build"
    # Only the project's own code is instrumented; the bench and the images are not built.
    options=(-DDSJ_SANITIZE="$sanitizers" -DDSJ_ENGINE=OFF -DDSJ_BENCH=OFF)
    scripts/build.sh "$build" "${JOBS:-$(scripts/jobs.sh compilers)}" "${options[@]}" -- help >/dev/null
    mapfile -t targets < <(targets_of "$build" "$pattern" | grep -v '_real_tests$' | grep -E "${DSJ_SANITIZE_TESTS:-.}")
    printf 'sanitize: %s: %s programs\n' "$sanitizers" "${#targets[@]}" >&2
    scripts/build.sh "$build" "${JOBS:-$(scripts/jobs.sh compilers)}" "${options[@]}" -- "${targets[@]}"
    GTEST_FILTER="$GTEST_FILTER$without" python3 scripts/run_tests.py "$build" "^($(IFS='|'; echo "${targets[*]}"))\$" || failed=1
  done
done
exit $failed
