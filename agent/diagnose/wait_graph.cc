#include "agent/diagnose/wait_graph.h"

#include <algorithm>
#include <map>
#include <vector>

#include "job/rank_runs.h"

namespace dsj::agent {
namespace {

const GroupLook* find_group(const RankLook& look, int64_t id) {
  const auto found = std::ranges::find(look.groups, id, &GroupLook::id);
  return found == look.groups.end() ? nullptr : &*found;
}

std::vector<RankGroup> groups_of(std::span<const RankLook> looks) {
  const int world = static_cast<int>(looks.size());
  std::map<int64_t, RankGroup> by_id;
  by_id[0];  // the world, even if no rank shows it
  for (int rank = 0; rank < world; ++rank) {
    if (!looks[rank].known) continue;
    by_id[0].shown_by.push_back(rank);
    for (const GroupLook& one : looks[rank].groups) {
      RankGroup& group = by_id[one.id];
      if (group.shown_by.empty()) {
        group = {.id = one.id, .name = one.name, .within = one.within};
        group.members = parse_ranks(one.members, world).value_or(std::vector<int>());
      }
      if (group.shown_by.empty() || group.shown_by.back() != rank) group.shown_by.push_back(rank);
    }
  }
  std::vector<RankGroup> groups;
  for (auto& [id, group] : by_id) {
    if (group.members.empty()) group.members = group.shown_by;
    std::ranges::sort(group.members);
    groups.push_back(std::move(group));
  }
  return groups;
}

/// Intervals such as "0-2".
std::vector<std::string> stretches(std::span<const int> ranks) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    texts.push_back(std::to_string(ranks[i]));
    if (end - i > 1) texts.back() += "-" + std::to_string(ranks[end - 1]);
    i = end;
  }
  return texts;
}

}  // namespace

WaitGraph::WaitGraph(std::span<const RankLook> looks) : looks_(looks), groups_(groups_of(looks)) {
  for (RankGroup& group : groups_) {
    group.lowest = INT64_MAX;
    for (const int rank : group.shown_by) {
      const int64_t last = stand(group, rank).first;
      group.highest = std::max(group.highest, last);
      if (last > group.lowest) continue;
      if (last < group.lowest) group.behind.clear();
      group.lowest = last;
      group.behind.push_back(rank);
    }
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (const int rank : groups_[i].shown_by) add(i, rank);
  }
}

std::pair<int64_t, int64_t> WaitGraph::stand(const RankGroup& group, int rank) const {
  if (const GroupLook* const inner = look(group, rank)) return {begun(*inner), inner->ended};
  return {begun(looks_[rank]), looks_[rank].ended};
}

void WaitGraph::add(size_t index, int rank) {
  const RankGroup& group = groups_[index];
  const auto [last, ended] = stand(group, rank);
  if (last <= ended) return;
  if (group.lowest < last) return edges_.push_back({rank, index, -1});
  const GroupLook* const inner = look(group, rank);
  const int on = inner ? inner->waits_for : looks_[rank].waits_for;
  if (on == rank || !std::ranges::binary_search(group.shown_by, on)) return;
  if (stand(group, on).second < last) edges_.push_back({rank, index, on});
}

const GroupLook* WaitGraph::look(const RankGroup& group, int rank) const {
  return group.id == 0 ? nullptr : find_group(looks_[rank], group.id);
}

/// The nodes are the ranks, followed by one node per group for the ranks that are behind in it. So
/// there are no more edges than memberships of ranks in groups.
std::vector<std::vector<size_t>> WaitGraph::targets() const {
  std::vector<std::vector<size_t>> targets(looks_.size() + groups_.size());
  for (const Edge& edge : edges_) {
    targets[edge.rank].push_back(edge.on < 0 ? looks_.size() + edge.group : edge.on);
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (const int rank : groups_[i].behind) targets[looks_.size() + i].push_back(rank);
  }
  return targets;
}

std::vector<int> WaitGraph::roots() const {
  std::vector<bool> waits(looks_.size()), waited(looks_.size()), holds_up(groups_.size());
  for (const Edge& edge : edges_) {
    waits[edge.rank] = true;
    if (edge.on >= 0) {
      waited[edge.on] = true;
    } else {
      holds_up[edge.group] = true;
    }
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (!holds_up[i]) continue;
    for (const int rank : groups_[i].behind) waited[rank] = true;
  }
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(looks_.size()); ++rank) {
    if (waited[rank] && !waits[rank]) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> WaitGraph::circle() const {
  const auto all = targets();
  std::vector<int> incoming(all.size());
  for (const auto& of_one : all) {
    for (const size_t target : of_one) ++incoming[target];
  }
  std::vector<size_t> free;  // no remaining node waits for it
  for (size_t node = 0; node < all.size(); ++node) {
    if (incoming[node] == 0) free.push_back(node);
  }
  while (!free.empty()) {
    const size_t node = free.back();
    free.pop_back();
    for (const size_t target : all[node]) {
      if (--incoming[target] == 0) free.push_back(target);
    }
  }
  std::vector<int> ranks;
  for (size_t rank = 0; rank < looks_.size(); ++rank) {
    if (incoming[rank] > 0 && !all[rank].empty()) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::vector<WaitGraph::Wait> WaitGraph::waits_for(std::span<const int> ranks) const {
  const auto asked = [&](int rank) { return std::ranges::binary_search(ranks, rank); };
  std::vector<bool> asked_behind;  // once per group, not per waiting rank
  for (const RankGroup& group : groups_) {
    asked_behind.push_back(std::ranges::any_of(group.behind, asked));
  }
  std::vector<Wait> waits;
  for (const Edge& edge : edges_) {
    const RankGroup& group = groups_[edge.group];
    if (edge.on >= 0 ? !asked(edge.on) : !asked_behind[edge.group]) continue;
    const GroupLook* const inner = look(group, edge.rank);
    const CollectiveSeen& what = inner ? inner->begun.back() : looks_[edge.rank].begun.back();
    const bool same = !waits.empty() && waits.back().group == edge.group &&
                      waits.back().what == what && waits.back().begun == (edge.on >= 0);
    if (!same) waits.push_back({edge.group, what, {}, edge.on >= 0});
    waits.back().ranks.push_back(edge.rank);
  }
  return waits;
}

std::string text_in(const RankGroup& group, const CollectiveSeen& what) {
  if (group.id == 0) return to_text(what);
  return to_text(what) + " of " + group.name + " (" + ranks_text(group.members) + ")";
}

std::string ranks_list(std::span<const int> ranks) {
  std::string text;
  for (const auto& one : stretches(ranks)) text += (text.empty() ? "" : ", ") + one;
  return text;
}

std::string ranks_text(std::span<const int> ranks) {
  constexpr size_t kShown = 8;
  auto texts = stretches(ranks);
  std::string last;
  if (texts.size() > kShown) {
    texts.resize(kShown);
    last = "more";
  } else if (texts.size() > 1) {
    last = std::move(texts.back());
    texts.pop_back();
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < texts.size(); ++i) text += (i == 0 ? "" : ", ") + texts[i];
  return last.empty() ? text : text + " and " + last;
}

}  // namespace dsj::agent
