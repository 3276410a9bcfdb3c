// Diagnoses why a job does not train, with advice. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/pods.h"

namespace dsj::cli {

struct Advice {
  std::string what;  ///< "Scheduled is False (Unschedulable): quick-worker-0-1: 0/3 nodes ..."
  std::string todo;
};

/// The most urgent first; empty if no problem is known. `now`: seconds since 1970.
std::vector<Advice> diagnose(const Json& job, const std::vector<PodRef>& pods, int64_t now);

}  // namespace dsj::cli
