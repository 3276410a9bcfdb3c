// GPUs as reported by the driver's management library, which is loaded at the first read: the agent
// needs no CUDA. XIDs are events that only a current listener receives; the kernel's log with older
// ones is not readable in a container. The effects of older XIDs are readable: a lost GPU,
// counters, broken rows, and the driver's recovery action.
// Tested by: tests/agent/health/node_probe_test.cc
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/health/node_facts.h"

namespace dsj::agent {

class Nvml {
 public:
  explicit Nvml(std::string library = "libnvidia-ml.so.1");
  ~Nvml();
  /// nullopt if there is no such library, so that nothing is known about GPUs. A function that this
  /// version of the library lacks, or that a GPU does not support, leaves its facts unset. From the
  /// first call that the driver answers, it listens for XIDs.
  std::optional<DriverFacts> read();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace dsj::agent
