// How the stacks of a job's threads are asked for, and how they are told. In a cluster somebody sets an
// annotation of the job, which worker 0's agent sees; on one machine it gets SIGQUIT. Every agent then
// writes the stacks of its ranks to its log.
// Tested by: tests/agent/agent_test.cc
#pragma once

#include <cstdint>
#include <string>

namespace dsj {

/// On a job: the number of the newest request, milliseconds since 1970.
inline constexpr char kAnnotationStacks[] = "training.dsj.dev/stacks";

/// What stands in front of each line of a request's answer: "stacks #17: ". At a hang the number is the
/// attempt's.
inline std::string stacks_prefix(int64_t request) {
  return "stacks #" + std::to_string(request) + ": ";
}
/// The last line of a worker's answer.
inline constexpr char kStacksEnd[] = "end";

}  // namespace dsj
