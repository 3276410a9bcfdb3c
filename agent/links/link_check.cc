#include "agent/links/link_check.h"

#include <algorithm>
#include <set>
#include <utility>

#include "agent/wire/transport.h"
#include "common/format.h"

namespace dsj::agent {
namespace {

/// Figures shown per member: two rounds have four.
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

/// Time for connections and transfers, besides the time in which all workers hear of a round and
/// report.
constexpr Time kTransfers{5000};
/// Limit for each list of other findings.
constexpr size_t kToldMost = 8;

}  // namespace

std::string rate_text(int64_t bytes_per_second) {
  const double megabytes = static_cast<double>(bytes_per_second) * 1e-6;
  return text::format(megabytes < 10 ? "%.2f MB/s" : "%.0f MB/s", megabytes);
}

std::string ring_name(const RingMember& member) {
  return "node " + member.node + " (worker " + std::to_string(member.worker) + ")";
}

std::vector<int> ring_peers(int members, int round) {
  // With three members, two places back is one ahead.
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
                            rate_text(result.usual) + ", expected at least " +
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
                            (both_good ? "both nodes have faster links to other nodes"
                                       : "either node may be the cause"));
  }
  return result;
}

bool LinkCheck::measure(const std::vector<const WorkerReport*>& gang, int percent, Time now) {
  if (percent <= 0) return true;
  const bool covered = std::ranges::equal(covered_, gang, {}, {},
                                          [](const auto* report) { return report->incarnation; });
  if (!covered) begin(gang, now);
  if (!under_way_) return true;
  if (!take_rates(gang, now)) return false;
  const LinkJudgement judged = judge_links(links_, members_, percent);
  if (judged.any_slow && stage_ == 1) {
    begin_round(gang.size(), now);
    return false;
  }
  conclude(gang, judged);
  return true;
}

LinkOrder LinkCheck::order(int worker) const {
  return under_way_ && worker < static_cast<int>(orders_.size()) ? orders_[worker] : LinkOrder{};
}

std::optional<LinkFindings> LinkCheck::take_findings() {
  return std::exchange(findings_, std::nullopt);
}

void LinkCheck::begin(const std::vector<const WorkerReport*>& gang, Time now) {
  covered_.clear();
  members_.clear();
  places_.clear();
  links_.clear();
  missing_.clear();
  stage_ = 0;
  std::set<std::string> nodes;
  for (const WorkerReport* report : gang) {
    covered_.push_back(report->incarnation);
    const std::string& node = report->link.node;
    if (node.empty() || !nodes.insert(node).second) continue;
    members_.push_back({report->worker, node});
    places_.push_back(report->link);
  }
  under_way_ = members_.size() > 1;
  if (!under_way_) return;
  patience_ = 4 * soon_beat(static_cast<int>(gang.size())) + kTransfers;
  begin_round(gang.size(), now);
}

void LinkCheck::begin_round(size_t workers, Time now) {
  ++stage_;
  ++number_;
  began_ = now;
  peers_ = ring_peers(static_cast<int>(members_.size()), stage_);
  orders_.assign(workers, {});
  for (size_t i = 0; i < members_.size(); ++i) {
    const LinkPlace& to = places_[peers_[i]];
    orders_[members_[i].worker] = {number_, to.address, to.port, to.key};
  }
}

bool LinkCheck::take_rates(const std::vector<const WorkerReport*>& gang, Time now) {
  const auto rate_of = [&](const RingMember& member) -> const LinkRate& {
    return gang[member.worker]->link_rate;
  };
  const bool all = std::ranges::all_of(
      members_, [&](const RingMember& member) { return rate_of(member).round == number_; });
  if (!all && now - began_ < patience_) return false;
  for (size_t i = 0; i < members_.size(); ++i) {
    const LinkRate& rate = rate_of(members_[i]);
    const bool answered = rate.round == number_;
    if (answered && rate.bytes_per_second > 0) {
      links_.push_back({static_cast<int>(i), peers_[i], rate.bytes_per_second});
      continue;
    }
    missing_.push_back("the link from " + ring_name(members_[i]) + " to " +
                       ring_name(members_[peers_[i]]) + " could not be measured: " +
                       (answered ? rate.problem : "the worker did not report in time"));
  }
  return true;
}

void LinkCheck::conclude(const std::vector<const WorkerReport*>& gang,
                         const LinkJudgement& judged) {
  under_way_ = false;
  LinkFindings found;
  for (const auto& [member, why] : judged.slow) {
    for (const WorkerReport* report : gang) {
      if (report->link.node == members_[member].node) found.slow.emplace_back(report->worker, why);
    }
  }
  for (const auto* list : {&judged.unsure, &std::as_const(missing_)}) {
    for (size_t i = 0; i < std::min(list->size(), kToldMost); ++i) found.told.push_back((*list)[i]);
    if (list->size() > kToldMost) {
      found.told.push_back("and " + std::to_string(list->size() - kToldMost) + " more");
    }
  }
  found.summary = "the links of " + std::to_string(members_.size()) + " nodes were measured in " +
                  std::to_string(stage_) + (stage_ == 1 ? " round" : " rounds");
  if (judged.usual > 0) found.summary += ": the median is " + rate_text(judged.usual);
  findings_ = std::move(found);
}

}  // namespace dsj::agent
