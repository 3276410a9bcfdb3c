// Measures the links between the nodes of a gang before its ranks start: who sends to whom in which
// round, when that is over, and what it showed. Every node sends once and receives once in a round, all
// at the same time. One round suffices where nothing is slow, and there are two at most. A gang is
// measured again only when it has a pod that was not measured: never for a restart in place. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/gang/messages.h"
#include "agent/gang/peer_links.h"

namespace dsj::agent {

struct LinkFindings {
  std::string summary;  ///< one line for the log
  /// By worker: all those on a node whose link is too slow.
  std::vector<std::pair<int, std::string>> slow;
  std::vector<std::string> told;  ///< everything else
};

class LinkCheck {
 public:
  /// `gang`: the newest report of every worker, all of whom wait. `percent`: of the usual rate, below which
  /// a link is slow; 0: nothing is measured. True: nothing is left to do.
  bool measure(const std::vector<const WorkerReport*>& gang, int percent, Time now);
  /// What the worker has to do now; round 0: nothing.
  LinkOrder order(int worker) const;
  /// After a measurement, once.
  std::optional<LinkFindings> take_findings();

 private:
  void begin(const std::vector<const WorkerReport*>& gang, Time now);
  void begin_round(size_t workers, Time now);
  /// Takes the rates of a round that is over. False: somebody has not answered, and there is time left.
  bool take_rates(const std::vector<const WorkerReport*>& gang, Time now);
  void conclude(const std::vector<const WorkerReport*>& gang, const LinkJudgement& judged);

  std::vector<int64_t> covered_;  ///< [worker]: the incarnation that was, or is being, measured
  bool under_way_ = false;
  int64_t number_ = 0;  ///< of the last round; rises
  int stage_ = 0;       ///< round of this measurement, from 1
  Time began_{0};       ///< this round
  Time patience_{0};
  std::vector<RingMember> members_;
  std::vector<LinkPlace> places_;  ///< [member]
  std::vector<int> peers_;         ///< [member]: to whom it sends in this round
  std::vector<LinkOrder> orders_;  ///< [worker]: of this round
  std::vector<PeerLink> links_;    ///< of all rounds
  std::vector<std::string> missing_;
  std::optional<LinkFindings> findings_;
};

}  // namespace dsj::agent
