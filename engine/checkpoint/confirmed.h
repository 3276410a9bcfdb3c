// Which checkpoint of an attempt is known to be good: one that a step with a finite loss and a finite
// gradient has followed. Finite weights alone show nothing: after a step with a huge rate they are
// finite, and every loss with them is not. Retention keeps the newest confirmed checkpoint until a newer
// one is confirmed. Pure; the same on all ranks. Used by engine/train/saving.h.
#pragma once

#include <cstdint>
#include <optional>

namespace dsj::checkpoint {

class Confirmed {
 public:
  /// The weights of now are those of the checkpoint of `step`: it is saved, or the attempt begins with
  /// it.
  void saved(int64_t step) { newest_ = step; }
  /// A step, or an evaluation of rows that had a finite loss before, has used the weights. True: that
  /// confirms a checkpoint that was not confirmed before.
  bool took(bool finite) {
    if (!finite || newest_ == step_) return false;
    step_ = newest_;
    return true;
  }
  /// The newest confirmed checkpoint; nullopt: this attempt has confirmed none.
  std::optional<int64_t> step() const { return step_; }
  /// The newest checkpoint of all.
  std::optional<int64_t> newest() const { return newest_; }

 private:
  std::optional<int64_t> newest_, step_;
};

}  // namespace dsj::checkpoint
