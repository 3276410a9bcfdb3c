// The methods of update_method.h, and which optimizer has which. A new one is a class, a maker and a row
// in methods.cc.
// Tested by: tests/engine/zero/one_bit_test.cc, tests/engine/train/muon_test.cc
#pragma once

#include <memory>

#include "engine/zero/update_method.h"

namespace dsj::zero {

/// The method of the target's optimizer.
std::unique_ptr<UpdateMethod> make_update_method(const UpdateTarget& target);

/// LAMB (lamb.h).
std::unique_ptr<UpdateMethod> make_lamb(const UpdateTarget& target);

/// Muon. An update sees a whole matrix, so each has one owner: the ranks' parts of what is to be
/// orthogonalised are gathered, the owners work on theirs, and every rank gets its part of the
/// results. Where nothing is sharded, every rank works on all. Which flats are Muon's:
/// job/plan/muon_plan.h; AdamW updates the others. Semantics: DeepSpeed 0.19.8; docs/optimizers.md
/// says where it differs from itself. Of a matrix with g, its averaged, clipped gradient:
///   b = momentum b + (1-momentum) g
///   u = momentum b + (1-momentum) g                     Nesterov's form, with the new b
///   p = p (1 - lr weight_decay) - lr orthogonalised(u)  newton_schulz.h
/// State: momentum_buffer b.
std::unique_ptr<UpdateMethod> make_muon(const UpdateTarget& target);

/// AdamW whose moments are kept in 8 bits by blocks (optim/eight_bit.h), of the parameters that
/// job/plan/eight_bit_plan.h names; those of the others are fp32. An update has both moments of a piece
/// in fp32, applies AdamW's rule and quantises what came out. No block is cut between ranks: the
/// states do not depend on them. Checkpoints have the moments as AdamW's, in fp32, and the scales, with
/// which a resume has the same codes.
std::unique_ptr<UpdateMethod> make_eight_bit(const UpdateTarget& target);

/// OneBitAdam (one_bit.h). Stages 0 and 1, as the next two. At stage 1 the shards of moments and
/// masters stay with their owners, and the parameters are gathered after the update as ever. One rank
/// compresses nothing: its variance stays as it is.
///
/// Every rank needs the whole momentum before it. Between two steps that is what came over the wire:
/// a bit per number. Before the first compressed step, and after a resume, it is gathered once.
std::unique_ptr<UpdateMethod> make_one_bit_adam(const UpdateTarget& target);

/// OneBitLamb, as above, for any number of ranks. What it keeps per parameter does not depend on the
/// ranks: a checkpoint of another number of ranks has it, too.
std::unique_ptr<UpdateMethod> make_one_bit_lamb(const UpdateTarget& target);

/// ZeroOneAdam, for any number of ranks. At stage 1 moments and masters stay with their owners until
/// the variance is frozen. Behind that each rank moves every parameter by itself: it gathers them once
/// and goes on as at stage 0. Between two meetings masters and momenta of the ranks differ; a
/// checkpoint then has every rank's.
std::unique_ptr<UpdateMethod> make_zero_one_adam(const UpdateTarget& target);

}  // namespace dsj::zero
