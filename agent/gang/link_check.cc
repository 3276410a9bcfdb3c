#include "agent/gang/link_check.h"

#include <algorithm>
#include <set>
#include <utility>

#include "agent/gang/beat_pace.h"

namespace dsj::agent {
namespace {

/// Beside the time in which all workers hear of a round and tell of it: connections and transfers.
constexpr Time kTransfers{5000};
/// Of what could not be measured.
constexpr size_t kToldMost = 8;

}  // namespace

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
    missing_.push_back(
        "the link from " + ring_name(members_[i]) + " to " + ring_name(members_[peers_[i]]) +
        " could not be measured: " + (answered ? rate.problem : "the worker did not tell in time"));
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
      found.told.push_back("and " + std::to_string(list->size() - kToldMost) + " more like it");
    }
  }
  found.summary = "the links of " + std::to_string(members_.size()) + " nodes were measured in " +
                  std::to_string(stage_) + (stage_ == 1 ? " round" : " rounds");
  if (judged.usual > 0) found.summary += ": the median is " + rate_text(judged.usual);
  findings_ = std::move(found);
}

}  // namespace dsj::agent
