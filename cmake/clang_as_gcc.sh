#!/usr/bin/env bash
# clang_as_gcc.sh CLANG [LAUNCHER...] -- GCC ARGUMENTS...: compiles with clang what CMake asks of GCC. CMake knows one
# compiler per language and project; a target's launcher is the place where its compiler can be another one.
# The precompiled header keeps the name that CMake gives it. It is made with the instances of its templates, which GCC
# makes again in every file that uses it, and without times, so that ccache finds what was compiled with it.
set -euo pipefail
clang="$1"
shift
launcher=()
while [ "$1" != -- ]; do launcher+=("$1"); shift; done
shift 2

# -fclang-abi-compat: GCC, and libtorch which it compiled, name templates with conditions as clang did up to 16.
# -Wno-deprecated-declarations: libstdc++'s stable_sort uses what it deprecates itself.
arguments=(-fclang-abi-compat=16 -Wno-unknown-warning-option -Wno-deprecated-declarations -Xclang -fno-pch-timestamp)
making_header=no
[[ " $* " != *" -x c++-header "* ]] || making_header=yes
while [ $# -gt 0 ]; do
  case "$1" in
    # No OpenMP: clang's runtime is another than libtorch's, and at::parallel_for is a plain loop without it.
    --param=ggc-* | -fpch-preprocess | -fopenmp) ;;
    -include)
      if [ $making_header = yes ]; then
        arguments+=(-fpch-instantiate-templates -Xclang -include -Xclang "$2")
      else
        arguments+=(-include-pch "$2.gch")
      fi
      shift ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
exec "${launcher[@]}" "$clang" "${arguments[@]}"
