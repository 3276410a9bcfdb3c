// How an optimizer's update reaches the flats. Most optimizers look at one element at a time, and all
// they keep is the flats' states. The others need more than elements, send more than gradients, or
// save more than states: each is a method of its own (methods.h). Flats, ModelState and the stepper
// know this interface alone. Not thread-safe.
// Tested by: tests/engine/zero/model_state_test.cc, tests/engine/zero/one_bit_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/checkpoint/saved_run.h"
#include "engine/checkpoint/writer.h"
#include "engine/comm/collectives.h"
#include "engine/optim/optimizer.h"
#include "engine/zero/flat.h"
#include "job/dsconfig/resolved.h"
#include "job/layout/partition.h"
#include "job/layout/units.h"

namespace dsj::zero {

/// A step's numbers, of which a method makes its update.
struct StepNumbers {
  optim::Rates rates;
  int64_t updates = 0;    ///< applied before this one
  double grad_scale = 1;  ///< on the gradient: averaging, loss scale, clipping
};

/// What a method works on.
struct UpdateTarget {
  dsconfig::ResolvedConfig config;
  const std::vector<layout::UnitSpec>& units;
  const layout::FlatPlan& plan;
  std::vector<Flat*> flats;        ///< all of the plan's, frozen ones too; they outlive the method
  comm::Collectives& collectives;  ///< of the ranks among which masters and states are cut
  at::Device device;
  bool sharded = false;  ///< masters and states

  std::vector<Flat*> trained() const {
    std::vector<Flat*> trained;
    for (Flat* flat : flats)
      if (!flat->frozen()) trained.push_back(flat);
    return trained;
  }
};

class UpdateMethod {
 public:
  explicit UpdateMethod(const UpdateTarget& target) : target_(target) {}
  virtual ~UpdateMethod() = default;

  /// What it needs before: whether the gradients of the step behind `updates` updates stay on their
  /// ranks, unreduced. The same on all ranks.
  virtual bool keeps_gradients_local(int64_t /*updates*/) const { return false; }
  /// Updates every owned element and starts the gathers of whole copies. Collective, with what else it
  /// sends.
  virtual void step(const StepNumbers& numbers) = 0;

  // ---- what it saves besides the flats' states
  virtual Status for_pieces(const checkpoint::EmitPiece& /*emit*/) { return {}; }
  virtual void add_extents(std::vector<checkpoint::Extent>& /*extents*/) const {}
  /// Whether restore() needs whole flats (Flat::own): the checkpoint has masters and states of each
  /// rank. The same on all ranks.
  virtual bool restores_whole(const checkpoint::SavedRun& /*saved*/) const { return false; }
  /// After the flats'. Error: the checkpoint's.
  virtual Status restore(checkpoint::SavedRun& /*saved*/) { return {}; }
  /// What the last restore() met and could not use, as a warning; empty: nothing. The same on all
  /// ranks.
  virtual std::string dropped() const { return ""; }

 protected:
  /// The elementwise update of a step by the optimizer's rule.
  optim::Update rule_of(const StepNumbers& n) const {
    return optim::make_update(target_.config.optimizer, n.rates, n.updates, n.grad_scale);
  }

  const UpdateTarget target_;
};

}  // namespace dsj::zero
