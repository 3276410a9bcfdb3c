// The implementations of update_method.h and the optimizers that use them. To add one, write a
// class and a maker, and add a row in methods.cc.
// Tested by: tests/engine/zero/methods/one_bit_test.cc, tests/engine/train/muon_test.cc
#pragma once

#include <memory>

#include "engine/zero/methods/update_method.h"

namespace dsj::zero {

/// The method of the target's optimizer.
std::unique_ptr<UpdateMethod> make_update_method(const UpdateTarget& target);

/// LAMB (lamb.h).
std::unique_ptr<UpdateMethod> make_lamb(const UpdateTarget& target);

/// Muon. Each matrix is updated as a whole and has one owner rank. The ranks' parts of the input
/// are gathered, the owners orthogonalise their matrices, and every rank gets its part of the
/// results. If nothing is sharded, every rank computes all matrices. job/plan/muon_plan.h says
/// which flats use Muon; AdamW updates the others. Semantics: DeepSpeed 0.19.8; docs/optimizers.md
/// lists where DeepSpeed's own paths disagree. For a matrix with g, its averaged, clipped gradient:
///   b = momentum b + (1-momentum) g
///   u = momentum b + (1-momentum) g                     Nesterov's form, with the new b
///   p = p (1 - lr weight_decay) - lr orthogonalised(u)  newton_schulz.h
/// State: momentum_buffer b.
std::unique_ptr<UpdateMethod> make_muon(const UpdateTarget& target);

/// AdamW with moments stored in 8 bits by blocks (optim/eight_bit.h) for the parameters that
/// job/plan/eight_bit_plan.h names; the other moments are fp32. An update dequantizes both moments
/// of a piece to fp32, applies AdamW's rule and quantizes the result. Ranks share no block, so
/// states do not depend on the number of ranks. A checkpoint has the moments in fp32, as AdamW's,
/// and the scales; with both a resume gets the same codes.
std::unique_ptr<UpdateMethod> make_eight_bit(const UpdateTarget& target);

/// OneBitAdam (one_bit.h). Stages 0 and 1, as the next two. At stage 1 moments and masters stay
/// sharded, and the parameters are gathered after the update as usual. With one rank nothing is
/// compressed, and the variance stays frozen.
///
/// A step needs the whole previous momentum on every rank. Between two steps it is kept as it was
/// received: one bit per number. It is gathered before the first such step and after a resume.
std::unique_ptr<UpdateMethod> make_one_bit_adam(const UpdateTarget& target);

/// OneBitLamb, as above, for any number of ranks. Its per-parameter state does not depend on the
/// number of ranks, so a checkpoint restores it with any number of ranks.
std::unique_ptr<UpdateMethod> make_one_bit_lamb(const UpdateTarget& target);

/// ZeroOneAdam, for any number of ranks. At stage 1 moments and masters are sharded until the
/// variance is frozen. After that each rank updates every parameter itself: it gathers them once
/// and continues as at stage 0. Masters and momenta of the ranks differ between two
/// synchronizations; a checkpoint then contains those of every rank.
std::unique_ptr<UpdateMethod> make_zero_one_adam(const UpdateTarget& target);

}  // namespace dsj::zero
