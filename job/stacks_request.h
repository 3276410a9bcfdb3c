// How the stacks of a job's threads are requested, and how the answer looks. In a cluster, a user
// annotates the job, and worker 0's agent sees it; on one machine the agent gets SIGQUIT. Every
// agent then writes the stacks of its ranks to its log.
// Tested by: tests/agent/agent_test.cc
#pragma once

#include <cstdint>
#include <string>

namespace dsj {

/// On a job: the number of the newest request, in milliseconds since 1970.
inline constexpr char kAnnotationStacks[] = "training.dsj.dev/stacks";

/// The prefix of each line that answers a request: "stacks #17: ". At a hang the number is the
/// attempt's.
inline std::string stacks_prefix(int64_t request) {
  return "stacks #" + std::to_string(request) + ": ";
}
/// The last line of a worker's answer.
inline constexpr char kStacksEnd[] = "end";

}  // namespace dsj
