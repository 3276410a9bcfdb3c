// Who charges the end of an attempt to the restart budget (restart_budget.h). Worker 0's agent and
// the operator ask the same function, so that nobody charges an end whose cause he cannot know.
#pragma once

#include <cstdint>

namespace dsj {

enum class AttemptEnd {
  RankFailed,  ///< while every agent lived: a rank failed, hung, or ended without being asked to
  WorkerLost,  ///< a worker's agent is gone or silent: only its pod tells why
  PodTaken,    ///< nobody failed: a pod was taken away, and all ranks were asked to save
};

enum class Charger {
  Agent,     ///< agent 0, at once; the operator does the same sum when it reads of the next attempt
  Operator,  ///< the operator alone, by what it sees of the pod
  Nobody,
};

/// `worker`, `rank`: whom agent 0 blames in its report of a failure; -1: nobody.
constexpr AttemptEnd attempt_end_of(int64_t worker, int64_t rank) {
  return worker >= 0 && rank < 0 ? AttemptEnd::WorkerLost : AttemptEnd::RankFailed;
}

/// `operated`: an operator replaces lost workers. false: `dsj run`, where agent 0 alone judges.
constexpr Charger charger_of(AttemptEnd end, bool operated) {
  switch (end) {
    case AttemptEnd::RankFailed:
      return Charger::Agent;
    case AttemptEnd::WorkerLost:
      return operated ? Charger::Operator : Charger::Agent;
    case AttemptEnd::PodTaken:
      break;
  }
  return Charger::Nobody;
}

}  // namespace dsj
