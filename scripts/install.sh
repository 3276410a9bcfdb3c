#!/bin/sh
# install.sh [PREFIX]: copies the folder of a tarball of `make dist`, in which it lies, to PREFIX (/usr/local). The programs
# also run from that folder.
set -eu
prefix="${1:-/usr/local}"
cd "$(dirname "$0")"
mkdir -p "$prefix"
tar -cf - bin lib share | tar -xf - -C "$prefix" --no-same-owner
echo "DeepSpeedJob is in $prefix: $prefix/bin/dsj quickstart"
