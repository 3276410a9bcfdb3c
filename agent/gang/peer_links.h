// Which node's link is far below the others', from a few transfers between nodes. Everything is
// compared with the gang's own figures: nobody knows what a cluster's network should carry. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace dsj::agent
