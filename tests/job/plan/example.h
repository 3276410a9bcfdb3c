// The model that tests of the plan share.
#pragma once

#include "job/layout/model_config.h"

namespace dsj::plan {

/// Sizes that pad to themselves for 2 and 4 ranks: every parameter a multiple of 128 elements.
inline layout::ModelConfig example_model() {
  return {.model_type = "qwen2",
          .vocab_size = 1024,
          .hidden_size = 256,
          .intermediate_size = 512,
          .num_layers = 4,
          .num_heads = 4,
          .num_kv_heads = 4,
          .head_dim = 64};
}

}  // namespace dsj::plan
