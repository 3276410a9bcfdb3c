// The schedule of one optimizer step: a list of actions that gather and release flats, run units,
// and reduce gradients. Backward ends at the lowest trained unit. Frozen flats are gathered and
// released like others and never reduced. A pure function of sizes and limits: the trainer walks
// the list, the memory model counts with it, and all ranks build the same one, so they issue
// collectives in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "job/layout/partition.h"

namespace dsj::layout {

struct Action {
  enum class Kind {
    Gather,    ///< start gathering `flat`, ahead of its use or right before it
    Forward,   ///< run `unit` forward
    Turn,      ///< run the head forward and backward in one visit: loss and gradient
    Backward,  ///< run `unit` backward
    Release,   ///< free the gathered storage of `flat`
    Reduce,    ///< the gradient of `flat` is complete for this micro-step
  } kind;
  int unit = -1;
  int flat = -1;
  int micro_step = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

struct ScheduleLimits {
  bool sharded_parameters = false;  ///< layout/stage.h; if false, no Gather and no Release
  // In elements:
  int64_t prefetch = 50'000'000;               ///< gathered ahead; the last flat in full; 0: none
  int64_t max_live = 1'000'000'000;            ///< gathered at a time; needed flats always fit
  int64_t max_reuse_distance = 1'000'000'000;  ///< a flat stays if it is used again within this
};

/// The actions of a step in order. A micro-step that repeats is stored once.
class Actions {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Action;
    using difference_type = std::ptrdiff_t;
    using pointer = const Action*;
    using reference = Action;

    Iterator() = default;
    Iterator(const Actions& of, size_t at) : of_(&of), at_(at) {}
    Action operator*() const { return (*of_)[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    Iterator operator++(int) {
      Iterator before = *this;
      ++at_;
      return before;
    }
    bool operator==(const Iterator& other) const { return at_ == other.at_; }

   private:
    const Actions* of_ = nullptr;
    size_t at_ = 0;
  };

  void push_back(const Action& action) { stored_.push_back(action); }
  /// Declares that the stored actions [first, last) are one micro-step that runs `times` more,
  /// right after itself; later micro-steps are renumbered. Call it once, after the last push_back.
  void repeat(size_t first, size_t last, int64_t times);

  Action operator[](size_t at) const;
  bool empty() const { return stored_.empty(); }
  size_t size() const { return stored_.size() + repeated(); }
  Action front() const { return stored_.front(); }
  Action back() const { return (*this)[size() - 1]; }
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  size_t repeated() const { return (last_ - first_) * static_cast<size_t>(times_); }

  std::vector<Action> stored_;
  size_t first_ = 0, last_ = 0;
  int64_t times_ = 0;
};

struct Schedule {
  Actions actions;
  int64_t peak_live = 0;  ///< most gathered elements, with padding, without the persisted flat
  int64_t gathers = 0;    ///< gathers of flats
};

/// One forward pass (evaluation): Gather, Forward, Turn of the head, Release. Nothing stays
/// gathered.
Schedule make_forward_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                               const ScheduleLimits& limits);

/// `micro_steps` >= 1. Nothing stays gathered, because the update makes gathered flats stale. Time
/// and memory do not grow with the number of micro-steps.
Schedule make_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                       const ScheduleLimits& limits, int64_t micro_steps);
/// The same schedule, walked micro-step by micro-step: the oracle of make_schedule().
Schedule walk_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                       const ScheduleLimits& limits, int64_t micro_steps);

/// The flats that a micro-step reduces, in order.
std::vector<int> reductions(const Schedule& schedule);
/// The flat whose offloaded gradient to fetch when that of `flat` is complete: the second next in
/// `order`, which is reductions(), because the next one is being computed. It may belong to the
/// next micro-step; -1 if this is the step's last micro-step (`last`).
int flat_to_fetch(const std::vector<int>& order, int flat, bool last);

}  // namespace dsj::layout
