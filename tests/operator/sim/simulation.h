// One run from one seed: one to three jobs with a scenario each, faults for a while, then calm
// until the jobs are over; the oracle (job_run.h) watches every turn.
#pragma once

#include <string>
#include <vector>

#include "tests/operator/sim/bugs.h"
#include "tests/operator/sim/job_run.h"

namespace dsj::op::sim {

struct Outcome {
  Scenario scenario{};                ///< of the first job
  std::vector<std::string> problems;  ///< empty: as the oracle wants it
  int64_t turns = 0, kills = 0, writes = 0, jobs = 0, conflicts = 0;
  int64_t shrunk = 0, grown = 0;  ///< elastic jobs that were
};

Outcome simulate(uint64_t seed, const Bug* bug = nullptr);

}  // namespace dsj::op::sim
