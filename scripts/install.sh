#!/bin/sh
# install.sh [PREFIX]: copies its own folder, unpacked from a tarball of `make dist`, to PREFIX (/usr/local). The programs
# also run from that folder.
set -eu
prefix="${1:-/usr/local}"
cd "$(dirname "$0")"
mkdir -p "$prefix"
tar -cf - bin lib share | tar -xf - -C "$prefix" --no-same-owner
echo "DeepSpeedJob is in $prefix: $prefix/bin/dsj quickstart"
