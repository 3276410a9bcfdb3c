// What `dsj run` does before it starts a process: it reads the job, checks all that can be checked,
// and only then makes the output directory. It prints what it finds.
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
  std::string manifest;                ///< JOB.yaml; empty: a torchrun line
  std::vector<std::string> line;       ///< the torchrun line's words
  std::string output;                  ///< --output
  std::string format;                  ///< -o: text or json
  std::vector<std::string> overrides;  ///< --set
  Nodes nodes;
};

/// Splits `dsj run`'s own arguments from the torchrun line's. `variable`: of the environment, for what torchrun reads there.
Result<RunArguments> split_run_arguments(Arguments args, const Variable& variable);

struct PreparedJob {
  jobspec::Job job;
  std::vector<std::string> told;  ///< the messages of the warnings that were printed
};
/// The job with absolute paths; a hub id is replaced by its model in the Hugging Face cache. Prints
/// every finding on stderr, one per line. nullopt: it does not pass the check (job_check.h); nothing
/// was written. Error: the words make no job.
Result<std::optional<PreparedJob>> prepare_job(const RunArguments& arguments);

}  // namespace dsj::cli
