#!/usr/bin/env bash
# clang.sh [install]: prints the clang++ that compiles the fuzz programs; with `install` it is installed first, by apt,
# where it is not there. Nothing is printed, exit 4, where none can be had: nothing is fuzzed then. <expected> of libstdc++
# needs the concepts of clang 19.
set -euo pipefail
# shellcheck source=scripts/apt.sh
. "$(dirname "$0")/apt.sh"
sudo_options=(-n)  # nobody may be there to type a password
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
