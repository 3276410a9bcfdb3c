// The shape that tests of large gangs count with.
#pragma once

#include "job/layout/model_config.h"

namespace dsj::testing_support {

inline layout::ModelConfig llama_70b() {
  return {.model_type = "llama",
          .vocab_size = 128256,
          .hidden_size = 8192,
          .intermediate_size = 28672,
          .num_layers = 80,
          .num_heads = 64,
          .num_kv_heads = 8,
          .head_dim = 128,
          .max_position = 8192,
          .qkv_bias = false};
}

}  // namespace dsj::testing_support
