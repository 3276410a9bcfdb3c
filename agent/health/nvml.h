// GPUs as the driver's management library tells of them, which is opened when it is asked: the agent
// needs no CUDA. An XID itself is not readable in a container; what it leaves behind is.
// Tested by: tests/agent/health/node_probe_test.cc
#pragma once

#include <optional>
#include <string>

#include "agent/health/node_facts.h"

namespace dsj::agent {

/// nullopt: there is no such library, so nothing is known of GPUs. A function that this version of
/// the library lacks, or that a GPU does not support, leaves its facts unset.
std::optional<DriverFacts> read_gpus(const std::string& library = "libnvidia-ml.so.1");

}  // namespace dsj::agent
