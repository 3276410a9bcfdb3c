// What the memory model counts with: a model, a resolved config, a world size. Plain data.
#pragma once

#include <cstdint>
#include <optional>

#include "job/dsconfig/resolved.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"

namespace dsj::plan {

struct MemoryInput {
  layout::ModelConfig model;
  dsconfig::ResolvedConfig config;  ///< of a complete Resolution
  int world = 1;
  int64_t tokens_per_row = 2048;  ///< the longest row; all rows are taken to be as long
  bool recompute = false;         ///< gradient_checkpointing
  bool native_products = true;    ///< 16-bit products run natively (common/cpu.h)
  std::optional<LoraArgs> lora;   ///< resolved (layout/lora.h); unset: everything is trained
};

}  // namespace dsj::plan
