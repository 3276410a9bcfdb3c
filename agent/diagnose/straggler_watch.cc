#include "agent/diagnose/straggler_watch.h"

#include <algorithm>

#include "common/format.h"

namespace dsj::agent {
namespace {

constexpr Time kBetween{1000}, kRound{5000};
constexpr int64_t kRoundSteps = 8;
constexpr int kRounds = 4;
constexpr double kSlow = 1.3, kFine = 1.15, kOfStep = 0.1, kLeastSeconds = 0.03;
constexpr size_t kShown = 8;

double seconds(int64_t microseconds) {
  return static_cast<double>(microseconds) * 1e-6;
}

/// The median of all values of `sorted` except the one at `index`. Needs at least two values.
double median_of_others(const std::vector<double>& sorted, size_t index) {
  const size_t others = sorted.size() - 1;
  const auto at = [&](size_t i) { return sorted[i < index ? i : i + 1]; };
  return others % 2 == 1 ? at(others / 2) : (at(others / 2 - 1) + at(others / 2)) / 2;
}

}  // namespace

void StragglerWatch::forget() {
  *this = StragglerWatch();
}

bool StragglerWatch::round_is_over(const std::vector<Pace>& paces, Time now) const {
  if (now - round_began_ < kRound) return false;
  for (size_t i = 0; i < paces.size(); ++i) {
    if (paces[i].steps - before_[i].steps < kRoundSteps) return false;
  }
  return true;
}

void StragglerWatch::judge_rank(Rank& rank, double own, double others, double step_seconds,
                                int64_t step) const {
  const bool slow =
      own > kSlow * others && own - others > kOfStep * step_seconds && own - others > kLeastSeconds;
  const bool fine = own < kFine * others || own - others < kOfStep * step_seconds / 2 ||
                    own - others < kLeastSeconds / 2;
  if (slow && rank.slow == 0) rank.since_step = step;
  rank.slow = slow ? rank.slow + 1 : 0;
  rank.fine = fine ? rank.fine + 1 : 0;
  if (rank.slow == kRounds && !rank.named) {
    rank.named = true;
    rank.figures = {0, own, others, rank.since_step};
  } else if (rank.fine >= kRounds) {
    rank.named = false;
  }
}

bool StragglerWatch::judge(const std::vector<Pace>& paces, int64_t step, Time now) {
  next_ = now + kBetween;
  const bool known = paces.size() > 1 &&
                     std::ranges::all_of(paces, [](const Pace& pace) { return pace.steps > 0; });
  if (!known) return false;
  // If a rank's counts fell, it is a different rank process.
  const bool same = before_.size() == paces.size() &&
                    std::ranges::equal(before_, paces, [](const Pace& then, const Pace& pace) {
                      return pace.steps >= then.steps && pace.step_us >= then.step_us &&
                             pace.own_us >= then.own_us;
                    });
  if (!same) {
    before_ = paces;
    round_began_ = now;
    ranks_.resize(paces.size());
    return false;
  }
  if (!round_is_over(paces, now)) return false;
  std::vector<double> own(paces.size());
  double all = 0;
  for (size_t i = 0; i < paces.size(); ++i) {
    const auto steps = static_cast<double>(paces[i].steps - before_[i].steps);
    own[i] = seconds(paces[i].own_us - before_[i].own_us) / steps;
    all += seconds(paces[i].step_us - before_[i].step_us) / steps;
  }
  std::vector<double> sorted = own;
  std::ranges::sort(sorted);
  std::vector<Straggler> named;
  for (size_t i = 0; i < own.size(); ++i) {
    const auto place =
        static_cast<size_t>(std::ranges::lower_bound(sorted, own[i]) - sorted.begin());
    judge_rank(ranks_[i], own[i], median_of_others(sorted, place),
               all / static_cast<double>(own.size()), step);
    if (!ranks_[i].named) continue;
    named.push_back(ranks_[i].figures);
    named.back().rank = static_cast<int>(i);
  }
  before_ = paces;
  round_began_ = now;
  const bool other =
      !std::ranges::equal(named, stragglers_, {}, &Straggler::rank, &Straggler::rank);
  stragglers_ = std::move(named);
  return other;
}

std::string stragglers_text(const std::vector<Straggler>& stragglers,
                            const std::vector<int>& slots) {
  std::string text;
  for (size_t i = 0; i < std::min(stragglers.size(), kShown); ++i) {
    const Straggler& one = stragglers[i];
    size_t worker = 0;
    for (int left = one.rank; worker + 1 < slots.size() && left >= slots[worker]; ++worker) {
      left -= slots[worker];
    }
    text += text::format(
        "%srank %d (worker %zu) needs %.3g s of a step for itself, the others %.3g s, since step "
        "%ld",
        i == 0 ? "" : "; ", one.rank, worker, one.own_seconds, one.others_seconds,
        static_cast<long>(one.since_step));
  }
  if (stragglers.size() > kShown)
    text += "; and " + std::to_string(stragglers.size() - kShown) + " more";
  return text;
}

}  // namespace dsj::agent
