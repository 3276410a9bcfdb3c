// The steps of a 1-bit optimizer in which gradients stay on their ranks (optim/one_bit.h): one form
// per optimizer. ModelState owns one. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "common/result.h"
#include "engine/checkpoint/saved_run.h"
#include "engine/checkpoint/writer.h"
#include "engine/optim/one_bit.h"
#include "engine/zero/flat.h"
#include "job/plan/one_bit_plan.h"

namespace dsj::zero {

inline constexpr int kMomentum = 1;  ///< exp_avg, among a flat's states

class OneBit {
 public:
  virtual ~OneBit() = default;
  /// Updates every owned element from the ranks' local gradients, and starts the gathers of whole
  /// copies. Collective. What it keeps besides the flats' states begins at the first call.
  virtual void step(const optim::OneBitUpdate& update) = 0;
  /// A step before the freeze is done. `coefficients`: LAMB's, [slots] double of each flat that is not
  /// frozen; undefined tensors for other optimizers.
  virtual void warmed_up(const optim::OneBitUpdate& update,
                         const std::vector<at::Tensor>& coefficients);

  // ---- what belongs to this rank alone
  virtual Status for_pieces(const checkpoint::EmitPiece& emit) = 0;
  virtual void add_extents(std::vector<checkpoint::Extent>& extents) const = 0;
  /// Whether restore() needs whole flats (Flat::own): the checkpoint has masters and momenta of each
  /// rank. The same on all ranks.
  virtual bool restores_whole(const checkpoint::SavedRun&) const { return false; }
  /// After the flats'. A checkpoint of another number of ranks, or with other vectors, leaves it as it
  /// was at the start. Error: the checkpoint's.
  virtual Status restore(checkpoint::SavedRun& saved) = 0;
  /// The last restore() met what it could not use. The same on all ranks.
  virtual bool dropped() const = 0;
};

/// What a 1-bit optimizer works on.
struct OneBitParts {
  plan::OneBitPlan plan;
  std::vector<Flat*> flats;  ///< all of the plan's, frozen ones too; they outlive it
  comm::Collectives& collectives;
  at::Device device;
  bool sharded = false;  ///< masters and moments (stage 1)
};

/// OneBitAdam, for more than one rank. Stages 0 and 1: at stage 1 the shards of moments and masters
/// stay with their owners, and the parameters are gathered after the update as ever.
///
/// Every rank needs the whole momentum before it. Between two steps that is what came over the wire:
/// a bit per number. Before the first compressed step, and after a resume, it is gathered once.
std::unique_ptr<OneBit> make_one_bit_adam(OneBitParts parts);

/// OneBitLamb, for any number of ranks. Stages 0 and 1, as above. What it keeps per parameter does not
/// depend on the ranks: a checkpoint of another number of ranks has it, too.
std::unique_ptr<OneBit> make_one_bit_lamb(OneBitParts parts);

/// ZeroOneAdam, for any number of ranks. Stages 0 and 1: at stage 1 moments and masters stay with
/// their owners until the variance is frozen. Behind that each rank moves every parameter by itself:
/// it gathers them once and goes on as at stage 0. Between two meetings masters and momenta of the ranks
/// differ; a checkpoint then has every rank's.
std::unique_ptr<OneBit> make_zero_one_adam(OneBitParts parts);

}  // namespace dsj::zero
