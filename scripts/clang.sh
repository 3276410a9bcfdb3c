#!/usr/bin/env bash
# clang.sh [install]: prints the path of the clang++ that compiles the fuzz programs. With `install`, a missing one is first
# installed by apt. Exit 4 without output if there is none: then nothing is fuzzed. libstdc++'s <expected> needs the concepts
# of clang 19.
set -euo pipefail
# shellcheck source=scripts/apt.sh
. "$(dirname "$0")/apt.sh"
sudo_options=(-n)  # never ask for a password
versions=(21 20 19)
say() { printf '  %s\n' "$*" >&2; }

find_clang() {
  local version
  for version in "${versions[@]}"; do
    if command -v "clang++-$version"; then return 0; fi
  done
  return 1
}

install_clang() {
  local version="${versions[-1]}"
  can_be_root || { say "clang is missing and there is neither root nor sudo"; return 1; }
  say "apt: installing clang-$version"
  apt_update >/dev/null || return 1
  apt_install "clang-$version" "libclang-rt-$version-dev" >/dev/null || return 1
}

if find_clang; then exit 0; fi
if [ "${1:-}" = install ] && install_clang && find_clang; then exit 0; fi
exit 4
