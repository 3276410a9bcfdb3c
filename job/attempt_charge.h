// Which program charges the end of an attempt to the restart budget (restart_budget.h). Worker 0's
// agent and the operator call this; each charges only ends whose cause it knows.
#pragma once

#include <cstdint>

namespace dsj {

enum class AttemptEnd {
  RankFailed,  ///< a rank failed, hung, or ended unasked while every agent was alive
  WorkerLost,  ///< a worker's agent is gone or silent: only its pod shows the cause
  PodTaken,    ///< no failure: a pod was taken away, and all ranks were asked to save
};

enum class Charger {
  Agent,     ///< agent 0, at once; the operator computes the same when it reads of the next attempt
  Operator,  ///< the operator alone, from the state of the pod
  Nobody,
};

/// `worker`, `rank`: those that agent 0's report blames for the failure; -1 if none.
constexpr AttemptEnd attempt_end_of(int64_t worker, int64_t rank) {
  return worker >= 0 && rank < 0 ? AttemptEnd::WorkerLost : AttemptEnd::RankFailed;
}

/// `operated`: an operator replaces lost workers. If false (`dsj run`), agent 0 alone decides.
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
