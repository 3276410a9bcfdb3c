#include "agent/gang/peer_links.h"

#include <algorithm>

#include "common/format.h"

namespace dsj::agent {
namespace {

/// Of one member: four in two rounds.
constexpr size_t kFiguresShown = 4;

int64_t usual_rate(const std::vector<PeerLink>& links, size_t members) {
  std::vector<int64_t> best(members, 0);
  for (const PeerLink& link : links) {
    for (const int end : {link.from, link.to})
      best[end] = std::max(best[end], link.bytes_per_second);
  }
  std::erase(best, 0);
  if (best.empty()) return 0;
  std::ranges::sort(best);
  return best[best.size() / 2];
}

}  // namespace

std::string rate_text(int64_t bytes_per_second) {
  const double megabytes = static_cast<double>(bytes_per_second) * 1e-6;
  return text::format(megabytes < 10 ? "%.2f MB/s" : "%.0f MB/s", megabytes);
}

std::string ring_name(const RingMember& member) {
  return "node " + member.node + " (worker " + std::to_string(member.worker) + ")";
}

std::vector<int> ring_peers(int members, int round) {
  // Of three, two steps back are one ahead.
  const int step = round == 1 || members == 2 ? 1 : members == 3 ? -1 : -2;
  std::vector<int> peers(members);
  for (int i = 0; i < members; ++i) peers[i] = (i + step + members) % members;
  return peers;
}

LinkJudgement judge_links(const std::vector<PeerLink>& links,
                          const std::vector<RingMember>& members, int percent) {
  LinkJudgement result{.usual = usual_rate(links, members.size())};
  const auto limit = static_cast<double>(result.usual) * percent / 100;
  const auto is_slow = [&](const PeerLink& link) {
    return static_cast<double>(link.bytes_per_second) < limit;
  };
  std::vector<char> sends_well(members.size()), receives_well(members.size());
  for (const PeerLink& link : links) {
    if (is_slow(link)) {
      result.any_slow = true;
    } else {
      sends_well[link.from] = receives_well[link.to] = true;
    }
  }
  std::vector<char> condemned(members.size());
  for (const PeerLink& link : links) {
    if (!is_slow(link)) continue;
    if (receives_well[link.to] && !sends_well[link.from]) condemned[link.from] = true;
    if (sends_well[link.from] && !receives_well[link.to]) condemned[link.to] = true;
  }
  if (2 * std::ranges::count(condemned, true) >= static_cast<std::ptrdiff_t>(members.size())) {
    std::ranges::fill(condemned, false);
  }
  const std::string usual = "the median of " + std::to_string(members.size()) + " nodes is " +
                            rate_text(result.usual) + ", expected are at least " +
                            std::to_string(percent) + " % of it (minPeerBandwidthPercent)";
  for (size_t i = 0; i < members.size(); ++i) {
    if (!condemned[i]) continue;
    std::string figures;
    size_t shown = 0;
    for (const PeerLink& link : links) {
      const bool sends = link.from == static_cast<int>(i);
      if (!is_slow(link) || (!sends && link.to != static_cast<int>(i))) continue;
      if (shown++ == kFiguresShown) break;
      figures += (figures.empty() ? "" : ", ") + rate_text(link.bytes_per_second) +
                 (sends ? " to " : " from ") + ring_name(members[sends ? link.to : link.from]);
    }
    result.slow.emplace_back(i, "its link to other nodes carries " + figures + "; " + usual);
  }
  for (const PeerLink& link : links) {
    if (!is_slow(link) || condemned[link.from] || condemned[link.to]) continue;
    const bool both_good = sends_well[link.from] && receives_well[link.to];
    result.unsure.push_back("the link from " + ring_name(members[link.from]) + " to " +
                            ring_name(members[link.to]) + " carries " +
                            rate_text(link.bytes_per_second) + "; " + usual + "; " +
                            (both_good ? "to and from others both nodes carry more"
                                       : "which of the two is the cause is not known"));
  }
  return result;
}

}  // namespace dsj::agent
