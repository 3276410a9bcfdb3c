// Prepares `dsj run` before it starts a process: reads the job, checks everything, and only
// then creates the output directory. Prints the findings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/run/run_nodes.h"
#include "cli/verbs.h"
#include "common/result.h"
#include "job/spec/job.h"

namespace dsj::cli {

struct RunArguments {
  bool help = false;
  std::string manifest;                ///< JOB.yaml; empty for a torchrun line
  std::vector<std::string> line;       ///< the torchrun line's words
  std::string output;                  ///< --output
  std::string format;                  ///< -o: text or json
  std::vector<std::string> overrides;  ///< --set
  Nodes nodes;
};

/// Splits `dsj run`'s own arguments from a torchrun line. `variable`: reads torchrun's variables.
Result<RunArguments> split_run_arguments(Arguments args, const Variable& variable);

struct PreparedJob {
  jobspec::Job job;
  std::vector<std::string> told;  ///< messages of the warnings that were printed
};
/// Returns the job with absolute paths; a hub id is replaced by its model in the Hugging Face
/// cache. Prints every finding on stderr, one per line. nullopt if the job does not pass the
/// check (job_check.h); nothing is written then. Errors: the arguments do not describe a job.
Result<std::optional<PreparedJob>> prepare_job(const RunArguments& arguments);

}  // namespace dsj::cli
