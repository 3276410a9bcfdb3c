// One run from one seed: a scenario, faults for a while, then calm until the job is over; the
// oracle watches every turn.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/operator/sim/agents.h"
#include "tests/operator/sim/sim_operator.h"

namespace dsj::op::sim {

enum class Scenario {
  Plain,       ///< to Complete
  Suspend,     ///< suspended for a while, then resumed
  Scale,       ///< to another world size
  BadEdit,     ///< a spec that is refused, later mended
  Refused,     ///< refused from the beginning, later mended
  CrashLoop,   ///< every attempt fails: the budget ends it
  PodLoop,     ///< no pod gets as far as an attempt
  Fatal,       ///< an exit that no attempt helps against
  Deadline,    ///< activeDeadlineSeconds is over first
  Delete,      ///< the job is deleted at some time
  TimeToLive,  ///< complete, then gone
};
inline constexpr int kScenarios = 11;

struct Outcome {
  Scenario scenario{};
  std::vector<std::string> problems;  ///< empty: as the oracle wants it
  int64_t turns = 0, kills = 0, writes = 0, requests = 0;
};

Outcome simulate(uint64_t seed, const Bug* bug = nullptr);

}  // namespace dsj::op::sim
