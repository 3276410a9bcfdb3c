// Bytes per rank by class and elements on the wire per optimizer step, counted by walking the same
// schedule that the trainer walks. Parameters, gradients, optimizer and buckets follow the layout
// exactly; activations are an upper bound (activation_model.h). What is measured against it:
// tests/run/plan_check.py, docs/plan.md. Process overhead (code, libraries, allocator slack) is not
// counted. Called by `dsj plan` and `dsj run`. Pure.
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
  bool native_products = true;    ///< 16-bit products run in 16 bits (common/cpu.h)
  std::optional<LoraArgs> lora;   ///< resolved (layout/lora.h); unset: everything is trained
};

/// Peak bytes of one rank. On the device, which on a CPU is host memory: the five classes, whose
/// peaks need not fall together, and `peak`, the most at any one moment. Beside it: what offload
/// keeps in host memory and in files.
struct MemoryClasses {
  int64_t parameters = 0;   ///< working copies: whole, gathered, 16-bit shards
  int64_t gradients = 0;    ///< whole or sharded
  int64_t optimizer = 0;    ///< fp32 masters and optimizer states
  int64_t buckets = 0;      ///< conversion and reduction scratch
  int64_t activations = 0;  ///< upper bound
  int64_t peak = 0;         ///< all classes at once; at most their sum
  int64_t host = 0;         ///< offload: this rank's optimizer state and parameters in host memory
  int64_t nvme = 0;         ///< offload: in files below nvme_path
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
  int64_t parameter_file = 0;        ///< of bytes.nvme, what offload_param puts there
};

MemoryModel memory_model(const MemoryInput& input);

/// Bytes of one checkpoint of the whole job, and of model/ as it is exported.
struct DiskUse {
  int64_t checkpoint = 0;
  int64_t model = 0;
};
DiskUse disk_use(const MemoryInput& input);

/// What DeepSpeed's documentation says a GPU of its own would need (docs/code-docs, "Memory
/// Requirements": mixed precision, Adam, no offload), to be read beside ours.
struct DeepSpeedEstimate {
  /// Bytes per GPU: stages 1, 2: 4 P + 16 P / N; 3: 18 P / N + 4 x the largest layer; 0: it has
  /// none.
  int64_t model_states = 0;
  /// overlap_comm's 4.5 times the two buckets, 2 bytes an element (Hugging Face's guide); 0
  /// without.
  int64_t overlap_buckets = 0;
};
DeepSpeedEstimate deepspeed_estimate(const MemoryInput& input);

}  // namespace dsj::dsconfig
