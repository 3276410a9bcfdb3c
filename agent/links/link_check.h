// Measures the links between the nodes of a gang before its ranks start: who sends to whom in each
// round, when the rounds are over, and what they showed. In a round every node sends once and
// receives once, all at the same time. One round suffices if no link is slow; there are at most
// two. A gang is measured again only if it has a pod that was not measured, never for a restart in
// place. Pure.
//
// Rates are compared only with the gang's own, because the capacity of a cluster's network is not
// known.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/wire/messages.h"

namespace dsj::agent {

/// A measured transfer between two members of the ring.
struct PeerLink {
  int from = 0, to = 0;
  int64_t bytes_per_second = 0;  ///< above 0
  bool operator==(const PeerLink&) const = default;
};

/// A member of the ring: one worker per node, because the workers of a node share its link.
struct RingMember {
  int worker = 0;
  std::string node;
};

/// "node n4 (worker 12)".
std::string ring_name(const RingMember& member);
/// "1180 MB/s".
std::string rate_text(int64_t bytes_per_second);

/// To whom each of `members` sends in round 1 or 2: to the next one, then to the one two places
/// back. So if a path between two groups of nodes is slow, no member has only that path in both
/// rounds.
std::vector<int> ring_peers(int members, int round);

struct LinkJudgement {
  /// The usual rate of this gang's links: each member's best transfer, and the median of these. 0
  /// if nothing was measured.
  int64_t usual = 0;
  bool any_slow = false;                          ///< a transfer is below the limit
  std::vector<std::pair<int, std::string>> slow;  ///< members with a slow link, and the figures
  std::vector<std::string> unsure;  ///< slow transfers whose cause is neither end for certain
};

/// A transfer is slow below `percent` of the usual rate. An end is good in a direction if one of
/// its transfers in that direction was not slow. A slow transfer condemns an end that is not known
/// to be good if the other end is good; this needs transfers with several peers, at least one of
/// them good. Between two members the cause cannot be told. If half of the members would be
/// condemned, none is: then the cause is the network between them.
LinkJudgement judge_links(const std::vector<PeerLink>& links,
                          const std::vector<RingMember>& members, int percent);

struct LinkFindings {
  std::string summary;  ///< one line for the log
  /// By worker: all workers on a node with a slow link.
  std::vector<std::pair<int, std::string>> slow;
  std::vector<std::string> told;  ///< other findings
};

class LinkCheck {
 public:
  /// `gang` has the newest report of every worker; all of them wait. Links below `percent` of the
  /// usual rate are slow; 0 disables the measurement. Returns true when it is finished.
  bool measure(const std::vector<const WorkerReport*>& gang, int percent, Time now);
  /// The worker's current order; round 0 if none.
  LinkOrder order(int worker) const;
  /// The findings of a measurement, returned once.
  std::optional<LinkFindings> take_findings();

 private:
  void begin(const std::vector<const WorkerReport*>& gang, Time now);
  void begin_round(size_t workers, Time now);
  /// Collects the rates of a round. Returns false if a worker has not answered and there is time
  /// left.
  bool take_rates(const std::vector<const WorkerReport*>& gang, Time now);
  void conclude(const std::vector<const WorkerReport*>& gang, const LinkJudgement& judged);

  std::vector<int64_t> covered_;  ///< [worker]: the incarnation that was measured, or is
  bool under_way_ = false;
  int64_t number_ = 0;  ///< number of the last round; rises
  int stage_ = 0;       ///< round within this measurement, from 1
  Time began_{0};       ///< start of this round
  Time patience_{0};
  std::vector<RingMember> members_;
  std::vector<LinkPlace> places_;  ///< [member]
  std::vector<int> peers_;         ///< [member]: to whom it sends in this round
  std::vector<LinkOrder> orders_;  ///< [worker]: for this round
  std::vector<PeerLink> links_;    ///< from all rounds
  std::vector<std::string> missing_;
  std::optional<LinkFindings> findings_;
};

}  // namespace dsj::agent
