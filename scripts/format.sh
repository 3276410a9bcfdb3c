#!/usr/bin/env bash
# format.sh [--check]: formats all C++ files; with --check it only lists files that differ, and exits 1 if there are any.
# Versions of clang-format differ in call chains and lambdas, so one is pinned and fetched from PyPI into ~/.cache/dsj.
set -euo pipefail
cd "$(dirname "$0")/.."
version=14.0.6 sha256=d7c1c5e404c58e55f0170f01b3c5611dce6c119e62b5d1020347e0ad97d5a047
cache="${DSJ_CACHE:-$HOME/.cache/dsj}" && program="$cache/clang-format-$version/clang-format"
if [ ! -x "$program" ]; then
  staging="$(mktemp -d)" && trap 'rm -rf "$staging"' EXIT
  PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip download -q --no-deps --only-binary=:all: \
    --platform manylinux2014_x86_64 -d "$staging" "clang-format==$version"
  printf '%s  %s\n' "$sha256" "$staging"/*.whl | sha256sum --check --status ||
    { echo "clang-format $version does not have the pinned checksum $sha256" >&2; exit 3; }
  unzip -qoj "$staging"/*.whl clang_format/data/bin/clang-format -d "$staging"
  chmod +x "$staging/clang-format" && mkdir -p "$(dirname "$program")" && mv "$staging/clang-format" "$program"
fi
files() { git ls-files '*.h' '*.cc' ':!common/json_instances.h'; }  # its macros are aligned in columns
if [ "${1:-}" = --check ]; then
  differ="$(files | while read -r file; do
    "$program" "$file" | cmp -s - "$file" || echo "$file"
  done)"
  [ -z "$differ" ] || { printf '%s\n' "$differ"; exit 1; }
else
  files | xargs "$program" -i
fi
