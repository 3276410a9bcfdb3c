// Measures the links between the nodes of a gang before its ranks start: who sends to whom in which
// round, when that is over, and what it showed. Every node sends once and receives once in a round, all
// at the same time. One round suffices where nothing is slow, and there are two at most. A gang is
// measured again only when it has a pod that was not measured: never for a restart in place. Pure.
//
// Everything is compared with the gang's own figures: nobody knows what a cluster's network should carry.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/wire/messages.h"

namespace dsj::agent {

/// A transfer that was measured, between two members of the ring.
struct PeerLink {
  int from = 0, to = 0;
  int64_t bytes_per_second = 0;  ///< above 0
  bool operator==(const PeerLink&) const = default;
};

/// A member of the ring: one worker for each node, since the workers of a node share its link.
struct RingMember {
  int worker = 0;
  std::string node;
};

/// "node n4 (worker 12)".
std::string ring_name(const RingMember& member);
/// "1180 MB/s".
std::string rate_text(int64_t bytes_per_second);

/// To whom each of `members` sends in round 1 or 2: to the next, then to the next but one on the other
/// side. So a path between two groups of nodes that is slow in both rounds is nobody's only one.
std::vector<int> ring_peers(int members, int round);

struct LinkJudgement {
  /// What the links of this gang carry: the median, over the members, of the best transfer of each;
  /// 0: nothing was measured.
  int64_t usual = 0;
  bool any_slow = false;                          ///< a transfer is below the limit
  std::vector<std::pair<int, std::string>> slow;  ///< members whose link is, and the figures
  std::vector<std::string>
      unsure;  ///< slow transfers of which neither end is known to be the cause
};

/// A transfer is slow below `percent` of what is usual. An end is good in a direction in which one of
/// its transfers was not slow. A slow transfer condemns the end that is not known to be good, if the
/// other one is: so it takes transfers with several peers, and one that is good. Between two members
/// nothing tells which one is the cause. Where half of the members would be condemned, none is: then it
/// is the network between them.
LinkJudgement judge_links(const std::vector<PeerLink>& links,
                          const std::vector<RingMember>& members, int percent);

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
