// The exit codes of `dsj` with their meanings, for the verbs, for `dsj --help`, and for
// docs/cluster.md; a test compares the page with this table.
// Tested by: tests/cli/exit_codes_test.cc
#pragma once

#include <array>

namespace dsj::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitRefused = 1,
  kExitUsage = 2,
  kExitSurroundings = 3,
  kExitNotFound = 4,
  kExitForbidden = 5,
  kExitUnreachable = 6,
  kExitNotFinite = 7,
  kExitNodes = 8,
  kExitStopped = 130,
};

struct ExitMeaning {
  ExitCode code;
  const char* meaning;
};

inline constexpr std::array<ExitMeaning, 10> kExitMeanings = {{
    {kExitOk, "done"},
    {kExitRefused, "the job failed, does not pass the check, or cannot do that now"},
    {kExitUsage, "usage, or a file that cannot be read"},
    {kExitSurroundings,
     "the environment: no kubeconfig, a missing library, no space, no permission"},
    {kExitNotFound, "no such job, or a cluster without DeepSpeedJobs"},
    {kExitForbidden, "not authenticated, or not allowed"},
    {kExitUnreachable, "no answer from the API server"},
    {kExitNotFinite, "NotFinite: losses, gradients or weights of a run became nan or infinite"},
    {kExitNodes, "nodes of a run on several machines did not join in time"},
    {kExitStopped, "stopped by Ctrl-C or SIGTERM"},
}};

}  // namespace dsj::cli
