#include "agent/gang/stall_watch.h"

#include <algorithm>
#include <functional>

#include "job/flight_log.h"

namespace dsj::agent {
namespace {

constexpr size_t kGapsKept = 64, kGapsFew = 8;
constexpr int kPatience = 5;
constexpr Time kShortest{30'000};
/// Agents that do not answer are silent, and lost, before that; those of an older version never do.
constexpr Time kAnswer{3000};

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

}  // namespace dsj::agent
