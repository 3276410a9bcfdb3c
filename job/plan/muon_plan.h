// Which parameters Muon orthogonalizes, the state that it keeps for each, and the memory of a step.
// The engine (engine/zero/methods/muon) and the memory model use it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "job/dsconfig/config/resolved.h"
#include "job/layout/partition.h"

namespace dsj::plan {

bool is_muon(const dsconfig::ResolvedConfig& config);
/// Whether Muon orthogonalizes it: a trained matrix without "embed" and "lm_head" in its name, as
/// DeepSpeed 0.19.8 decides. This includes GPT-2's embeddings ("wte", "wpe") and LoRA's matrices.
bool is_orthogonalised(const layout::Parameter& parameter);
/// The same for a flat, which has only such matrices (FlatPlanOptions::alone) or none.
bool is_orthogonalised(const layout::FlatLayout& flat, const dsconfig::ResolvedConfig& config);

/// Muon takes only matrices. Errors: BadInput with the first trained tensor of more dimensions (all
/// experts of a layer in one). None for other optimizers.
Status check_muon(const std::vector<layout::UnitSpec>& units,
                  const dsconfig::ResolvedConfig& config);

/// The most bytes of an update's temporaries (engine/zero/methods/muon.cc, newton_schulz.cc). 0 without
/// Muon.
int64_t muon_scratch(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config);
/// fp32 elements that a rank sends per step: its part of each matrix to the matrix's owner, and the
/// owners' results.
int64_t muon_elements(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
