#include "agent/diagnose/stall.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "agent/diagnose/wait_graph.h"
#include "job/flight_log.h"

namespace dsj::agent {
namespace {

constexpr size_t kGapsKept = 64, kGapsFew = 8;
constexpr int kPatience = 5;
constexpr Time kShortest{30'000};
/// Agents that do not answer for longer are considered lost; those of an older version never
/// answer.
constexpr Time kAnswer{3000};

using Looks = std::span<const RankLook>;

constexpr size_t kWaitsTold = 3;  // in a message, besides the main one
constexpr size_t kSidesTold = 4;  // of ranks that issue different collectives

/// The ranks for which `is` returns true.
template <typename Is>
std::vector<int> those(Looks looks, const Is& is) {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(looks.size()); ++rank) {
    if (is(looks[rank])) ranks.push_back(rank);
  }
  return ranks;
}

/// One judgement: the looks at all ranks, and who waits for whom.
class Judge {
 public:
  explicit Judge(Looks looks) : looks_(looks), graph_(looks) {}

  Stall stopped(std::vector<int> culprits) const;
  std::optional<Stall> differing() const;
  /// The cause is ranks that others wait for.
  std::optional<Stall> held_up() const;
  /// The cause is ranks that have not begun a collective that others have.
  std::optional<Stall> behind() const;
  /// The cause is ranks that wait for one another.
  std::optional<Stall> circle() const;
  Stall nobody() const;
  std::string whereabouts(int rank) const;

 private:
  const RankGroup& group(size_t index) const { return graph_.groups()[index]; }
  /// The collectives that `rank` began in a group, oldest first.
  const std::vector<CollectiveSeen>& begun_by(int rank, const RankGroup& group) const;
  int64_t last_begun(int rank, const RankGroup& group) const;
  bool is_inside(int rank, const RankGroup& group) const;
  /// What any rank recorded of the group's collective with this number.
  std::optional<CollectiveSeen> seen(const RankGroup& group, int64_t sequence) const;
  std::optional<Stall> differing(const RankGroup& group) const;
  Stall missing(std::vector<int> culprits, size_t in) const;
  /// Where `rank` is besides the world's collectives.
  std::string inner_whereabouts(int rank) const;
  /// "; rank 2 waits in ...": which ranks wait for `culprits` outside of group `told`. If
  /// `lagging`, the culprits have not begun that group's collective, so its parts are left out.
  std::string other_waits(const std::vector<int>& culprits, size_t told, bool lagging) const;

  const Looks looks_;
  const WaitGraph graph_;
};

std::string seconds_text(int64_t ms) {
  return std::to_string(ms / 1000) + " s";
}

/// Text like "; ranks 0 and 1 wait in all_gather ...".
std::string waiting_text(const std::vector<int>& waiting, const std::string& collective) {
  if (waiting.empty() || collective.empty()) return "";
  return "; " + ranks_text(waiting) + (waiting.size() > 1 ? " wait in " : " waits in ") +
         collective;
}

/// "it ", or the first of several ranks.
std::string first_of(const std::vector<int>& ranks) {
  return ranks.size() > 1 ? "rank " + std::to_string(ranks.front()) + " " : "it ";
}

const std::vector<CollectiveSeen>& Judge::begun_by(int rank, const RankGroup& group) const {
  const GroupLook* const inner = graph_.look(group, rank);
  return inner ? inner->begun : looks_[rank].begun;
}

int64_t Judge::last_begun(int rank, const RankGroup& group) const {
  const GroupLook* const inner = graph_.look(group, rank);
  return inner ? begun(*inner) : begun(looks_[rank]);
}

bool Judge::is_inside(int rank, const RankGroup& group) const {
  const GroupLook* const inner = graph_.look(group, rank);
  return inner ? inside(*inner) : inside(looks_[rank]);
}

std::optional<CollectiveSeen> Judge::seen(const RankGroup& group, int64_t sequence) const {
  for (const int rank : group.shown_by) {
    for (const auto& one : begun_by(rank, group)) {
      if (one.sequence == sequence) return one;
    }
  }
  return std::nullopt;
}

std::string Judge::inner_whereabouts(int rank) const {
  std::string text;
  const RankGroup* last = nullptr;  // the part of the world's collective that it ended last
  int64_t quiet = INT64_MAX;
  bool in_a_part = false;
  for (const RankGroup& group : graph_.groups()) {
    const GroupLook* const look = graph_.look(group, rank);
    if (!look || look->begun.empty()) continue;
    if (inside(*look)) {
      text += (group.within < 0 ? ", and in " : ", there in ") + text_in(group, look->begun.back());
      in_a_part |= group.within == 0;
    } else if (group.within == 0 && look->quiet_ms < quiet) {
      last = &group;
      quiet = look->quiet_ms;
    }
  }
  if (in_a_part || !last || !inside(looks_[rank])) return text;
  return text + ", there behind " + text_in(*last, begun_by(rank, *last).back());
}

/// Text like "is in step 41, training, and ended all_gather #411 (layer 3, 4096 bytes) 31 s ago".
std::string Judge::whereabouts(int rank) const {
  const RankLook& look = looks_[rank];
  if (!look.known) return "has no flight log";
  std::string text = look.step > 0 ? "is in step " + std::to_string(look.step) + ", " : "is ";
  text += look.phase;
  if (look.begun.empty())
    text += ", and has not begun a collective";
  else
    text += (inside(look) ? ", in " : ", and ended ") + to_text(look.begun.back()) +
            (inside(look) ? " for " + seconds_text(look.quiet_ms)
                          : " " + seconds_text(look.quiet_ms) + " ago");
  return text + inner_whereabouts(rank);
}

std::string Judge::other_waits(const std::vector<int>& culprits, size_t told, bool lagging) const {
  std::string text;
  size_t count = 0;
  for (const auto& wait : graph_.waits_for(culprits)) {
    const bool part = lagging && group(wait.group).within == group(told).id;
    if (wait.group == told || part || count++ >= kWaitsTold) continue;
    text += waiting_text(wait.ranks, text_in(group(wait.group), wait.what));
  }
  return text;
}

Stall Judge::stopped(std::vector<int> culprits) const {
  Stall stall{.ranks = std::move(culprits)};
  const int first = stall.ranks.front();
  stall.message =
      ranks_text(stall.ranks) +
      (stall.ranks.size() > 1 ? " are stopped (SIGSTOP): rank " + std::to_string(first) + " "
                              : " is stopped (SIGSTOP): it ") +
      whereabouts(first);
  const auto others = those(
      looks_, [](const RankLook& look) { return look.known && !look.stopped && inside(look); });
  if (!others.empty()) stall.collective = to_text(looks_[others.front()].begun.back());
  stall.message += waiting_text(others, stall.collective);
  const RankGroup& world = group(0);
  const bool lagging =
      std::ranges::binary_search(world.behind, first) && world.lowest < world.highest;
  stall.message += other_waits(stall.ranks, 0, lagging);
  return stall;
}

/// The group's first collective that two ranks recorded differently.
std::optional<Stall> Judge::differing(const RankGroup& group) const {
  // With many ranks, the entries of several collectives may differ.
  std::map<int64_t, std::map<CollectiveSeen, std::vector<int>>> by_number;
  for (const int rank : group.shown_by)
    for (const auto& one : begun_by(rank, group)) by_number[one.sequence][one].push_back(rank);
  for (const auto& [sequence, ranks_of] : by_number) {
    if (ranks_of.size() < 2) continue;
    // The largest side first; of equal ones, the side with the lowest rank.
    std::vector<std::pair<CollectiveSeen, std::vector<int>>> sides(ranks_of.begin(),
                                                                   ranks_of.end());
    std::ranges::sort(sides, {}, [](const auto& side) {
      return std::pair(-std::ssize(side.second), side.second.front());
    });
    Stall stall{.message = "the ranks issue different collectives: ",
                .collective = text_in(group, sides.front().first)};
    for (size_t i = 0; i < std::min(sides.size(), kSidesTold); ++i) {
      const auto& [what, ranks] = sides[i];
      stall.message += (i == 0 ? "" : ", ") + text_in(group, what) + " on " + ranks_text(ranks);
    }
    if (sides.size() > kSidesTold)
      stall.message += " and " + std::to_string(sides.size() - kSidesTold) + " more";
    if (sides.front().second.size() > sides[1].second.size()) {
      for (size_t i = 1; i < sides.size(); ++i) {
        stall.ranks.insert(stall.ranks.end(), sides[i].second.begin(), sides[i].second.end());
      }
      std::ranges::sort(stall.ranks);
    }
    return stall;
  }
  return std::nullopt;
}

std::optional<Stall> Judge::differing() const {
  for (const RankGroup& group : graph_.groups()) {
    if (auto stall = differing(group)) return stall;
  }
  return std::nullopt;
}

/// `culprits` have not begun a collective that others of the group have.
Stall Judge::missing(std::vector<int> culprits, size_t in) const {
  const RankGroup& of = group(in);
  Stall stall{.ranks = std::move(culprits)};
  if (const auto what = seen(of, of.lowest + 1)) stall.collective = text_in(of, *what);
  std::vector<int> waiting;
  for (const int rank : of.shown_by) {
    if (last_begun(rank, of) > of.lowest) waiting.push_back(rank);
  }
  stall.message = ranks_text(stall.ranks) + " did not arrive: " + first_of(stall.ranks) +
                  whereabouts(stall.ranks.front()) + waiting_text(waiting, stall.collective);
  return stall;
}

std::optional<Stall> Judge::held_up() const {
  const std::vector<int> culprits = graph_.roots();
  if (culprits.empty()) return std::nullopt;
  const auto waits = graph_.waits_for(culprits);
  const auto there = std::ranges::find(waits, true, &WaitGraph::Wait::begun);
  if (there == waits.end()) {
    // Of several groups, the one that the culprit is in; otherwise the outermost.
    const auto own = std::ranges::find_if(waits, [&](const WaitGraph::Wait& wait) {
      return is_inside(culprits.front(), group(wait.group));
    });
    const size_t in = (own == waits.end() ? waits.begin() : own)->group;
    Stall stall = missing(culprits, in);
    stall.message += other_waits(culprits, in, true);
    return stall;
  }
  Stall stall{.collective = text_in(group(there->group), there->what), .ranks = culprits};
  stall.message = ranks_text(culprits) + (culprits.size() > 1 ? " do" : " does") +
                  " not go on: " + first_of(culprits) + whereabouts(culprits.front()) +
                  waiting_text(there->ranks, stall.collective) +
                  other_waits(culprits, there->group, false);
  return stall;
}

std::optional<Stall> Judge::behind() const {
  const RankGroup& world = group(0);
  if (world.lowest >= world.highest) return std::nullopt;
  return missing(world.behind, 0);
}

std::optional<Stall> Judge::circle() const {
  const std::vector<int> ranks = graph_.circle();
  const auto known = those(looks_, [](const RankLook& look) { return look.known; });
  const bool all = ranks.size() == known.size();
  // If all are in the world's collective, nobody() describes it better.
  if (ranks.empty() || (all && is_inside(ranks.front(), group(0)))) return std::nullopt;
  Stall stall{.message = ranks_text(ranks) + " wait for one another"};
  if (!all) stall.ranks = ranks;
  size_t count = 0;
  for (const auto& wait : graph_.waits_for(ranks)) {
    const bool theirs = std::ranges::any_of(
        wait.ranks, [&](int rank) { return std::ranges::binary_search(ranks, rank); });
    if (!theirs || count++ >= kWaitsTold) continue;
    const std::string text = text_in(group(wait.group), wait.what);
    if (stall.collective.empty()) stall.collective = text;
    stall.message += (count == 1 ? " in " : ", ") + text;
  }
  std::vector<int> others;
  std::ranges::set_difference(known, ranks, std::back_inserter(others));
  std::erase_if(others, [&](int rank) { return !is_inside(rank, group(0)); });
  if (!others.empty())
    stall.message +=
        "; " + ranks_text(others) + (others.size() > 1 ? " wait" : " waits") + " for them";
  return stall;
}

Stall Judge::nobody() const {
  Stall stall;
  std::string parts;
  for (const RankGroup& group : graph_.groups()) {
    std::vector<int> in;
    for (const int rank : group.shown_by) {
      if (is_inside(rank, group)) in.push_back(rank);
    }
    if (in.empty()) continue;
    const std::string text = text_in(group, begun_by(in.front(), group).back());
    if (stall.collective.empty()) {
      stall.collective = text;
      stall.message = ranks_text(in) + (in.size() > 1 ? " are in " : " is in ") + text +
                      ", which every rank " + (group.id == 0 ? "" : "of it ") +
                      "has begun and which does not end";
    } else if (parts.size() < 400) {
      parts += (parts.empty() ? ": " : ", ") + ranks_text(in) + " in " + text;
    }
  }
  stall.message += parts;
  if (!stall.message.empty()) return stall;
  const auto known = those(looks_, [](const RankLook& look) { return look.known; });
  if (known.empty()) return {.message = "no rank keeps a flight log"};
  return {.message = "no rank is in a collective: rank " + std::to_string(known.front()) + " " +
                     whereabouts(known.front())};
}

}  // namespace

Time stall_limit(const std::vector<Time>& gaps, Time configured) {
  if (gaps.size() < kGapsFew) return configured;
  return std::min(configured, std::max(kShortest, kPatience * *std::ranges::max_element(gaps)));
}

Time limit_for(const std::vector<RankLook>& looks, const std::vector<Time>& gaps, Time configured) {
  const Time limit = stall_limit(gaps, configured);
  const auto frozen = [](const RankLook& look) { return look.known && look.stopped; };
  if (std::ranges::any_of(looks, frozen)) return limit;
  const std::string training = name_of(FlightPhase::Training);
  const bool in_a_step = !looks.empty() && std::ranges::all_of(looks, [&](const RankLook& look) {
    return look.known && look.phase == training;
  });
  return in_a_step ? limit : configured;
}

void StallWatch::stepped(Time gap) {
  gaps_.push_back(gap);
  if (gaps_.size() > kGapsKept) gaps_.erase(gaps_.begin());
}

void StallWatch::forget() {
  request_ = 0;
  first_.clear();
}

void StallWatch::slept(Time gap) {
  asked_at_ += gap;
  first_at_ += gap;
}

void StallWatch::ask(Time now) {
  request_ = ++newest_;
  asked_at_ = now;
}

StallWatch::Verdict StallWatch::judge(Time quiet, const std::vector<RankLook>& looks,
                                      Time configured, Time now) {
  const Time limit = stall_limit(gaps_, configured);
  if (quiet < limit / 2) {
    forget();
    return Verdict::Wait;
  }
  if (request_ == 0) {
    ask(now);
    return Verdict::Wait;
  }
  if (!wants_looks()) {
    if (now - asked_at_ >= std::clamp(limit / 16, Time(500), Time(10'000))) ask(now);
    return Verdict::Wait;
  }
  if (looks.empty()) {
    return quiet > configured && now - asked_at_ > kAnswer ? Verdict::Stalled : Verdict::Wait;
  }
  judged_ = request_;
  if (first_.size() != looks.size()) {
    first_ = looks;
    first_at_ = now;
    return Verdict::Wait;
  }
  if (!std::ranges::equal(first_, looks, std::not_fn(moved))) {
    forget();
    return Verdict::Moved;
  }
  const bool sure = quiet > limit_for(looks, gaps_, configured) && now - first_at_ >= limit / 4;
  return sure ? Verdict::Stalled : Verdict::Wait;
}

Stall judge_stall(Looks looks) {
  const Judge judge(looks);
  if (auto culprits = those(looks, [](const RankLook& look) { return look.stopped; });
      !culprits.empty()) {
    return judge.stopped(std::move(culprits));
  }
  if (auto stall = judge.differing()) return *stall;
  if (auto stall = judge.held_up()) return *stall;
  if (auto stall = judge.behind()) return *stall;
  if (auto stall = judge.circle()) return *stall;
  if (looks.size() == 1) return {.message = "rank 0 " + judge.whereabouts(0), .ranks = {0}};
  return judge.nobody();
}

}  // namespace dsj::agent
