// A model that tests lay out and walk through by hand.
#pragma once

#include "job/layout/model_config.h"

namespace dsj::layout {

inline ModelConfig tiny_qwen2(bool tied, int64_t layers) {
  return {.model_type = "qwen2",
          .vocab_size = 96,
          .hidden_size = 32,
          .intermediate_size = 64,
          .num_layers = layers,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 8,
          .max_position = 64,
          .tied = tied};
}

}  // namespace dsj::layout
