// Tracks which checkpoint of an attempt is known to be good: one that is followed by a step with a
// finite loss and a finite gradient. Finite weights prove nothing: after a step with a huge rate
// they are finite, but every loss is not. Retention keeps the newest confirmed checkpoint until a
// newer one is confirmed. Pure; the same on all ranks. Used by engine/train/state/saving.h.
#pragma once

#include <cstdint>
#include <optional>

namespace dsj::checkpoint {

class Confirmed {
 public:
  /// Call it when the current weights are those of the checkpoint of `step`: it was saved, or the
  /// attempt begins with it.
  void saved(int64_t step) { newest_ = step; }
  /// Call it when a step, or an evaluation of rows that had a finite loss before, has used the
  /// weights. Returns true if that newly confirms a checkpoint.
  bool took(bool finite) {
    if (!finite || newest_ == step_) return false;
    step_ = newest_;
    return true;
  }
  /// The newest confirmed checkpoint; nullopt if this attempt has confirmed none.
  std::optional<int64_t> step() const { return step_; }
  /// The newest checkpoint of all.
  std::optional<int64_t> newest() const { return newest_; }

 private:
  std::optional<int64_t> newest_, step_;
};

}  // namespace dsj::checkpoint
