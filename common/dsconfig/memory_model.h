// Bytes per rank by class and elements on the wire per optimizer step, counted by walking the same
// schedule that the trainer walks. Parameters, gradients, optimizer and buckets follow the layout
// exactly; activations are an estimate. Process overhead (code, libraries, allocator slack) is not
// counted. Called by `dsj plan`. Pure.
#pragma once

#include <cstdint>

#include "common/dsconfig/resolved.h"
#include "common/layout/lora.h"
#include "common/layout/model_config.h"

namespace dsj::dsconfig {

struct MemoryInput {
  layout::ModelConfig model;
  ResolvedConfig config;  ///< complete
  int world = 1;
  int64_t tokens_per_row = 2048;  ///< the longest row
  bool recompute = false;         ///< gradient_checkpointing
  std::optional<LoraArgs> lora;   ///< resolved (layout/lora.h); unset: everything is trained
};

/// Peak bytes of one rank; the peaks of classes need not fall together, so `total` is an upper
/// bound of their sum at any moment.
struct MemoryClasses {
  int64_t parameters = 0;   ///< working copies: whole, gathered, 16-bit shards
  int64_t gradients = 0;    ///< whole or sharded
  int64_t optimizer = 0;    ///< fp32 masters and moments
  int64_t buckets = 0;      ///< conversion and reduction scratch
  int64_t activations = 0;  ///< estimate
  int64_t total() const { return parameters + gradients + optimizer + buckets + activations; }
};

/// What one rank sends in a ring, per optimizer step.
struct WireCount {
  int64_t gradient_elements = 0, parameter_elements = 0;
  int64_t gradient_bytes = 0, parameter_bytes = 0;
};

struct MemoryModel {
  MemoryClasses bytes;
  WireCount wire;
  int64_t parameters = 0;            ///< of the model, adapters included
  int64_t trainable = 0;             ///< of these
  int64_t peak_live_parameters = 0;  ///< elements gathered at a time (stage 3), padding included
  int64_t gathers = 0;               ///< flats gathered per step (stage 3)
  int stage = 0;                     ///< the stage that runs
};

MemoryModel memory_model(const MemoryInput& input);

}  // namespace dsj::dsconfig
