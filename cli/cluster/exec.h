// Prepares `dsj exec`, which then replaces itself by kubectl. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/cluster/pods.h"

namespace dsj::cli {

struct ExecOptions {
  ClusterFlags flags;
  std::string name;
  std::optional<int64_t> rank, worker;
  std::vector<std::string> command;
};

/// The pod of the given rank or worker, worker 0's by default. Errors: there is no such rank,
/// or its pod does not run.
Result<std::string> exec_pod(const ExecOptions& options, const Json& job,
                             const std::vector<PodRef>& pods);
/// kubectl's command line. `terminal`: allocate one.
std::vector<std::string> exec_command(const ExecOptions& options, const std::string& ns,
                                      const std::string& pod, bool terminal);

}  // namespace dsj::cli
