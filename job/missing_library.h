// The message when one of our programs did not start because the dynamic loader did not find a library
// (contract::kExitNotStarted). The loader prints its own line before, which names the library.
// Tested by: tests/run/fake/run_test.cc
#pragma once

namespace dsj {

inline constexpr char kMissingLibrary[] =
    "the program did not start: a library is not here. Its own line names the library; "
    "scripts/setup.sh fetches libtorch, in a Python environment pip install torch==VERSION does, "
    "with "
    "the version that dsj --version shows, and LD_LIBRARY_PATH can name another folder with it";

}  // namespace dsj
