#include "agent/gang/rank_end.h"

#include <cstring>

#include "job/contract.h"

namespace dsj::agent {

RankEnd end_of(const RankState& rank) {
  if (rank.running) return RankEnd::Running;
  if (rank.stopped) return RankEnd::Stopped;
  if (rank.own_codes) {
    if (rank.asked) return RankEnd::Preempted;
    return rank.signal == 0 && rank.exit_code == 0 ? RankEnd::Done : RankEnd::Failed;
  }
  if (rank.signal != 0) return RankEnd::Failed;
  switch (rank.exit_code) {
    case contract::kExitDone:
      return RankEnd::Done;
    case contract::kExitPreempted:
      return RankEnd::Preempted;
    case contract::kExitPeerLost:
      return RankEnd::LostPeer;
    default:
      return contract::ends_the_job(rank.exit_code) ? RankEnd::Refused : RankEnd::Failed;
  }
}

std::string describe_exit(int exit_code, int signal) {
  if (signal == 0) return "exit code " + std::to_string(exit_code);
  const char* name = sigdescr_np(signal);
  return "signal " + std::to_string(signal) + " (" + (name ? name : "unknown") + ")";
}

}  // namespace dsj::agent
