// The numbers of one update of Muon: of the matrices that it orthogonalises, and of the other
// parameters, which AdamW updates. Which are which: job/plan/muon_plan.h. What it does to tensors:
// engine/zero/muon.h. Semantics: DeepSpeed 0.19.8; docs/optimizers.md says where it differs from itself.
// Pure, torch-free.
// Tested by: tests/engine/train/muon_test.cc
#pragma once

#include <cstdint>

#include "engine/optim/optimizer.h"
#include "job/dsconfig/resolved.h"

namespace dsj::optim {

/// g: the averaged, clipped gradient of a matrix [rows, columns].
///   b = momentum b + (1-momentum) g
///   u = momentum b + (1-momentum) g                     Nesterov's form, with the new b
///   p = p (1 - lr weight_decay) - lr orthogonalised(u)
/// State: momentum_buffer b.
struct MatrixUpdate {
  double lr = 0, momentum = 0, weight_decay = 0;
  double grad_scale = 1;  ///< on the gradient: averaging, loss scale, clipping
  dsconfig::NewtonSchulz method = dsconfig::NewtonSchulz::Gram;
  int steps = 5;
};

struct MuonUpdate {
  MatrixUpdate matrices;
  Update others;
};

/// `updates`: how many were applied before this one.
MuonUpdate muon_update(const dsconfig::ResolvedConfig& config, const Rates& rates, int64_t updates,
                       double grad_scale);

}  // namespace dsj::optim
