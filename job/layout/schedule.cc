#include "job/layout/schedule.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace dsj::layout {
namespace {

using Kind = Action::Kind;

/// A visit of a unit, with the sharded flats that it needs.
struct Use {
  Kind kind;
  int unit;
  int micro_step;
  std::vector<int> flats;
};

std::vector<Use> trace(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                       int64_t micro_steps, bool backward) {
  auto flats_of = [&](int unit) {
    std::vector<int> flats;
    auto add = [&](int of) {
      for (const int flat : {plan.unit_flat[of], plan.unit_frozen[of]})
        if (flat >= 0) flats.push_back(flat);
    };
    if (units[unit].uses_embedding) add(0);
    add(unit);
    return flats;
  };
  std::vector<Use> uses;
  const int last = head_of(units), lowest = lowest_trainable(units);
  const auto end = static_cast<int>(units.size());
  for (int g = 0; g < micro_steps; ++g) {
    uses.push_back({Kind::Forward, 0, g, flats_of(0)});
    for (int u = last + 1; u < end; ++u) uses.push_back({Kind::Forward, u, g, flats_of(u)});
    for (int u = 1; u < last; ++u) uses.push_back({Kind::Forward, u, g, flats_of(u)});
    uses.push_back({Kind::Turn, last, g, flats_of(last)});
    if (!backward) continue;
    for (int u = last - 1; u >= std::max(lowest, 1); --u)
      uses.push_back({Kind::Backward, u, g, flats_of(u)});
    if (lowest > 0) continue;
    for (int u = end - 1; u > last; --u) {
      if (units[u].only_rows)
        uses.push_back({Kind::Backward, u, g, {}});
      else
        uses.push_back({Kind::Backward, u, g, flats_of(u)});
    }
    // The embedding's backward reads token ids and writes a gradient; it does not need the weight.
    uses.push_back({Kind::Backward, 0, g, {}});
  }
  return uses;
}

/// Walks the uses and tracks the gathered flats. The limits decide prefetch, keep and release.
class Walk {
 public:
  Walk(const FlatPlan& plan, const ScheduleLimits& limits, const std::vector<Use>& uses,
       Schedule& out)
      : plan_(plan),
        limits_(limits),
        uses_(uses),
        live_(plan.flats.size(), false),
        ahead_(live_),
        out_(out) {}

  /// Gathers the flats of this and the next uses, runs it, releases flats that are used much later.
  void visit(size_t at) {
    if (limits_.sharded_parameters) {
      need(at);
      prefetch(at);
    }
    out_.actions.push_back({uses_[at].kind, uses_[at].unit, -1, uses_[at].micro_step});
    if (limits_.sharded_parameters) after(at);
  }

  /// Together with the later uses, this state determines all later actions.
  std::pair<std::vector<bool>, std::vector<bool>> state() const { return {live_, ahead_}; }

  void release_all(size_t at) {
    for (size_t flat = 0; flat < live_.size(); ++flat) {
      if (live_[flat]) release(static_cast<int>(flat), at);
    }
  }

 private:
  void need(size_t at) {
    for (const int flat : uses_[at].flats) {
      if (live_[flat]) continue;
      make_room(flat, at);
      gather(flat, at);
    }
  }

  /// The budget includes everything that is gathered ahead of its use, also by earlier visits.
  void prefetch(size_t at) {
    int64_t budget = limits_.prefetch;
    for (const int flat : uses_[at].flats) ahead_[flat] = false;
    for (int flat = 0; flat < static_cast<int>(ahead_.size()); ++flat) {
      if (ahead_[flat]) budget -= numel(flat);
    }
    for (size_t ahead = at + 1; ahead < uses_.size() && budget > 0; ++ahead) {
      for (const int flat : uses_[ahead].flats) {
        if (live_[flat]) continue;
        if (budget <= 0 || live_numel_ + numel(flat) > limits_.max_live) return;
        gather(flat, at);
        ahead_[flat] = true;
        budget -= numel(flat);
      }
    }
  }

  void after(size_t at) {
    for (const int flat : uses_[at].flats) {
      if (!live_[flat]) continue;
      const bool far = distance(flat, at) > limits_.max_reuse_distance;
      if (far || live_numel_ > limits_.max_live) release(flat, at);
    }
  }

  int64_t numel(int flat) const { return plan_.flats[flat].numel(); }

  /// Elements of the flats visited between `at` and the next use of `flat`; INT64_MAX if none.
  int64_t distance(int flat, size_t at) const {
    int64_t sum = 0;
    for (size_t next = at + 1; next < uses_.size(); ++next) {
      for (const int other : uses_[next].flats) {
        if (other == flat) return sum;
        sum += numel(other);
      }
    }
    return INT64_MAX;
  }

  /// Releases kept flats, the one with the farthest next use first, until `flat` fits under
  /// max_live or none is left.
  void make_room(int flat, size_t at) {
    const auto& needed = uses_[at].flats;
    while (live_numel_ + numel(flat) > limits_.max_live) {
      int victim = -1;
      int64_t farthest = -1;
      for (int other = 0; other < static_cast<int>(live_.size()); ++other) {
        if (!live_[other] || std::ranges::find(needed, other) != needed.end()) continue;
        const int64_t away = distance(other, at);
        if (away > farthest) farthest = away, victim = other;
      }
      if (victim < 0) return;
      release(victim, at);
    }
  }

  void gather(int flat, size_t at) {
    live_[flat] = true;
    live_numel_ += numel(flat);
    ++out_.gathers;
    out_.peak_live = std::max(out_.peak_live, live_numel_);
    out_.actions.push_back({Kind::Gather, -1, flat, uses_[at].micro_step});
  }

  void release(int flat, size_t at) {
    live_[flat] = ahead_[flat] = false;
    live_numel_ -= numel(flat);
    out_.actions.push_back({Kind::Release, -1, flat, uses_[at].micro_step});
  }

  const FlatPlan& plan_;
  const ScheduleLimits& limits_;
  const std::vector<Use>& uses_;
  std::vector<bool> live_, ahead_;
  int64_t live_numel_ = 0;
  Schedule& out_;
};

}  // namespace

void Actions::repeat(size_t first, size_t last, int64_t times) {
  DSJ_CHECK(first <= last && last <= stored_.size() && times >= 0);
  first_ = first, last_ = last, times_ = times;
}

Action Actions::operator[](size_t at) const {
  if (at < last_ || times_ == 0) return stored_[at];
  const size_t behind = at - last_;
  const size_t skipped = repeated();
  Action action =
      behind < skipped ? stored_[first_ + behind % (last_ - first_)] : stored_[at - skipped];
  action.micro_step += static_cast<int>(behind < skipped ? behind / (last_ - first_) + 1
                                                         : static_cast<size_t>(times_));
  return action;
}

Schedule make_forward_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                               const ScheduleLimits& limits) {
  DSJ_CHECK(units.size() >= 2);
  const std::vector<Use> uses = trace(units, plan, 1, /*backward=*/false);
  Schedule schedule;
  Walk walk(plan, limits, uses, schedule);
  for (size_t at = 0; at < uses.size(); ++at) walk.visit(at);
  if (limits.sharded_parameters) walk.release_all(uses.size() - 1);
  return schedule;
}

namespace {

/// A step whose micro-steps were walked one by one.
struct Walked {
  Schedule schedule;
  struct Begin {
    size_t action;
    int64_t gathers;
    std::pair<std::vector<bool>, std::vector<bool>> state;
    bool operator==(const Begin& other) const { return state == other.state; }
  };
  std::vector<Begin> begins;  ///< of each micro-step
};

Walked walk_step(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                 const ScheduleLimits& limits, int64_t micro_steps) {
  DSJ_CHECK(micro_steps > 0 && units.size() >= 2);
  const std::vector<Use> uses = trace(units, plan, micro_steps, /*backward=*/true);
  const int lowest = lowest_trainable(units);
  Walked walked;
  Schedule& schedule = walked.schedule;
  Walk walk(plan, limits, uses, schedule);
  for (size_t at = 0; at < uses.size(); ++at) {
    const Use& use = uses[at];
    if (use.micro_step == std::ssize(walked.begins))
      walked.begins.push_back({schedule.actions.size(), schedule.gathers, walk.state()});
    walk.visit(at);
    if (use.kind == Kind::Forward) continue;
    // A tied head's gradient is added to the embedding's flat and is reduced with it.
    if (const int flat = plan.unit_flat[use.unit]; flat >= 0) {
      schedule.actions.push_back({Kind::Reduce, use.unit, flat, use.micro_step});
    }
    if (use.unit == lowest && plan.persisted >= 0) {
      schedule.actions.push_back({Kind::Reduce, -1, plan.persisted, use.micro_step});
    }
  }
  if (limits.sharded_parameters) walk.release_all(uses.size() - 1);
  return walked;
}

}  // namespace

Schedule walk_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                       const ScheduleLimits& limits, int64_t micro_steps) {
  return walk_step(units, plan, limits, micro_steps).schedule;
}

Schedule make_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                       const ScheduleLimits& limits, int64_t micro_steps) {
  // Every unit is used in every micro-step, so a decision depends on at most one micro-step after
  // the next use. A micro-step that ends in the state in which it began, with two more after it,
  // can be repeated.
  constexpr int64_t kRepeated = 2, kBehind = 3, kWalked = kRepeated + 1 + kBehind;
  if (micro_steps <= kWalked) return walk_schedule(units, plan, limits, micro_steps);
  Walked walked = walk_step(units, plan, limits, kWalked);
  const auto& from = walked.begins[kRepeated];
  const auto& to = walked.begins[kRepeated + 1];
  if (from != to) return walk_schedule(units, plan, limits, micro_steps);
  const int64_t times = micro_steps - kWalked;
  walked.schedule.actions.repeat(from.action, to.action, times);
  walked.schedule.gathers += times * (to.gathers - from.gathers);
  return std::move(walked.schedule);
}

std::vector<int> reductions(const Schedule& schedule) {
  std::vector<int> order;
  for (const Action& action : schedule.actions)
    if (action.kind == Kind::Reduce && action.micro_step == 0) order.push_back(action.flat);
  return order;
}

int flat_to_fetch(const std::vector<int>& order, int flat, bool last) {
  const auto found = std::ranges::find(order, flat);
  if (found == order.end()) return -1;
  const size_t at = static_cast<size_t>(found - order.begin()) + 2;
  return last && at >= order.size() ? -1 : order[at % order.size()];
}

}  // namespace dsj::layout
