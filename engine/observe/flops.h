// flops_profiler: parameters, multiply-accumulates and floating-point operations of a forward pass,
// counted from shapes, with the latencies of one step. Torch-free and pure.
//
// It counts matrix products: N x out x in MACs for a weight [out, in] and N tokens, and 2 x heads x
// head_dim x L^2 for attention over each row of L tokens (not halved for causality, as in
// DeepSpeed). For a mixture of experts it counts the experts that a token uses: all experts'
// weights times experts per token / experts. A MAC is two operations. Elementwise work is excluded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/observe/step_clock.h"
#include "job/dsconfig/config/resolved.h"
#include "job/layout/units.h"

namespace dsj::observe {

/// A node of the model's tree: the model, a unit, a part of a unit ("self_attn"), or the owner of a
/// weight.
struct Module {
  std::string name;
  int64_t parameters = 0;
  int64_t macs = 0;
  double latency_ms = -1;  ///< of forward; negative if not measured separately
  std::vector<Module> children;
  int64_t flops() const { return 2 * macs; }
};

/// Decoder layers that process fewer tokens (random-LTD).
struct ShorterRows {
  std::span<const int64_t> layers;  ///< ascending, from 0
  int64_t most = 0;                 ///< maximum tokens per row
};

/// Counts one forward pass over rows of `lengths` tokens.
Module count_forward(const layout::ModelConfig& model, const std::vector<layout::UnitSpec>& units,
                     std::span<const int64_t> lengths, const ShorterRows& shorter = {});

/// The report's inputs besides the counts.
struct ProfiledStep {
  int64_t step = 0;
  int world = 1;
  int64_t rows = 0, tokens = 0;  ///< of the micro-batch
  int64_t accumulation = 1;
  double samples_per_step = 0;
  StepTimes times;  ///< of the whole step
};

/// The text of the profile, in the order of DeepSpeed's.
std::string flops_report(const dsconfig::FlopsProfilerConfig& config, Module model,
                         const ProfiledStep& step);

}  // namespace dsj::observe
