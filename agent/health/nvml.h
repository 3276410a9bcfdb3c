// GPUs as the driver's management library tells of them, which is opened when it is first asked: the
// agent needs no CUDA. XIDs are told as events, to those who listen when they happen; the kernel's log,
// which has older ones, is not readable in a container. What an older one leaves behind is read: a lost
// GPU, counters, broken rows, and what the driver itself says that the GPU needs.
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
  /// nullopt: there is no such library, so nothing is known of GPUs. A function that this version of
  /// the library lacks, or that a GPU does not support, leaves its facts unset. From the first call
  /// that the driver answers on it listens for XIDs.
  std::optional<DriverFacts> read();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace dsj::agent
