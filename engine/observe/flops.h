// flops_profiler: parameters, multiply-accumulates and floating-point operations of a forward pass,
// counted from shapes, beside the latencies of one step. Torch-free and pure.
//
// It counts matrix products: N x out x in MACs for a weight [out, in] over N tokens, and
// 2 x heads x head_dim x L^2 for attention over each row of L tokens (without a causal half, as in
// DeepSpeed). Of a mixture of experts it counts what tokens pass: all experts' weights times
// experts per token / experts. A MAC is two operations. Element-wise work is left out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/observe/step_clock.h"
#include "job/dsconfig/resolved.h"
#include "job/layout/units.h"

namespace dsj::observe {

/// A node of the model's tree: the model, a unit, a part of a unit ("self_attn"), or the owner of a
/// weight.
struct Module {
  std::string name;
  int64_t parameters = 0;
  int64_t macs = 0;
  double latency_ms = -1;  ///< of forward; negative: not measured by itself
  std::vector<Module> children;
  int64_t flops() const { return 2 * macs; }
};

/// Decoder layers that see fewer tokens (random-LTD).
struct ShorterRows {
  std::span<const int64_t> layers;  ///< rising, from 0
  int64_t most = 0;                 ///< tokens of each row at most
};

/// One forward pass over rows of these many tokens.
Module count_forward(const layout::ModelConfig& model, const std::vector<layout::UnitSpec>& units,
                     std::span<const int64_t> lengths, const ShorterRows& shorter = {});

/// What the report needs besides the counts.
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
