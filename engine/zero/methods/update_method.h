// How an optimizer updates the flats. Most optimizers are elementwise and keep only the flats'
// states. An optimizer that needs whole matrices, other communication or more saved state has its
// own method (methods.h). Flats, ModelState and the stepper use only this interface. Not
// thread-safe.
// Tested by: tests/engine/zero/model_state_test.cc, tests/engine/zero/methods/one_bit_test.cc
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
#include "engine/zero/flat/flat.h"
#include "job/dsconfig/config/resolved.h"
#include "job/layout/partition.h"
#include "job/layout/units.h"

namespace dsj::zero {

/// The numbers of a step from which a method makes its update.
struct StepNumbers {
  optim::Rates rates;
  int64_t updates = 0;    ///< number of earlier updates
  double grad_scale = 1;  ///< factor on the gradient: averaging, loss scale, clipping
};

/// What a method updates, and how it is sharded.
struct UpdateTarget {
  dsconfig::ResolvedConfig config;
  const std::vector<layout::UnitSpec>& units;
  const layout::FlatPlan& plan;
  std::vector<Flat*> flats;        ///< all of the plan's, also frozen; must outlive the method
  comm::Collectives& collectives;  ///< among which masters and states are cut
  at::Device device;
  bool sharded = false;  ///< whether masters and states are

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

  /// Whether the gradients of the step after `updates` updates must stay on their ranks, unreduced.
  /// The same on all ranks.
  virtual bool keeps_gradients_local(int64_t /*updates*/) const { return false; }
  /// Updates every owned element, sends whatever else the method needs, and starts the gathers of
  /// whole copies. Collective.
  virtual void step(const StepNumbers& numbers) = 0;

  // ---- saved state in addition to the flats' states
  virtual Status for_pieces(const checkpoint::EmitPiece& /*emit*/) { return {}; }
  virtual void add_extents(std::vector<checkpoint::Extent>& /*extents*/) const {}
  /// Whether restore() needs whole flats (Flat::own), because the checkpoint has each rank's
  /// masters and states. The same on all ranks.
  virtual bool restores_whole(const checkpoint::SavedRun& /*saved*/) const { return false; }
  /// Call it after the flats are restored. Errors: as reading the checkpoint.
  virtual Status restore(checkpoint::SavedRun& /*saved*/) { return {}; }
  /// A warning about saved state that the last restore() could not use, or empty. The same on all
  /// ranks.
  virtual std::string dropped() const { return ""; }

 protected:
  /// The elementwise update of a step by the optimizer's rule.
  optim::Update rule_of(const StepNumbers& n) const {
    return optim::make_update(target_.config.optimizer, n.rates, n.updates, n.grad_scale);
  }
  /// The same where LoRA+ raises the rate.
  optim::Update raised_rule_of(const StepNumbers& n) const {
    StepNumbers raised = n;
    raised.rates.lr *= target_.config.optimizer.lora_plus_ratio;
    raised.rates.previous_lr *= target_.config.optimizer.lora_plus_ratio;
    return rule_of(raised);
  }

  const UpdateTarget target_;
};

}  // namespace dsj::zero
