// Which parameters Muon orthogonalises, what it keeps of each, and what a step takes. The engine
// (engine/zero/muon) and the memory model go by it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "job/dsconfig/resolved.h"
#include "job/layout/partition.h"

namespace dsj::plan {

bool is_muon(const dsconfig::ResolvedConfig& config);
/// Whether Muon orthogonalises it: a trained matrix without "embed" and "lm_head" in its name, as
/// DeepSpeed 0.19.8 decides. GPT-2's embeddings ("wte", "wpe") are such matrices; LoRA's, too.
bool is_orthogonalised(const layout::Parameter& parameter);
/// A flat of such matrices, which has no other parameters (FlatPlanOptions::alone).
bool is_orthogonalised(const layout::FlatLayout& flat, const dsconfig::ResolvedConfig& config);

/// Muon takes matrices alone: an error that names the first trained tensor of more dimensions (all
/// experts of a layer in one). Any other optimizer: none.
Status check_muon(const std::vector<layout::UnitSpec>& units,
                  const dsconfig::ResolvedConfig& config);

/// Bytes of an update's temporary tensors, at most (engine/zero/muon.cc, newton_schulz.cc). 0: no
/// Muon.
int64_t muon_scratch(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config);
/// fp32 elements that a rank sends per step: its part of each matrix to the matrix's owner, and of
/// the owners' results.
int64_t muon_elements(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
