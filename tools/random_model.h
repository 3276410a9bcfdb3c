// Writes a model with random weights as a Hugging Face directory: a model before its first
// training step. Matrices are normally distributed, biases 0, norms 1.
#pragma once

#include <cstdint>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::tools {

struct ModelShape {
  std::string family = "qwen2";  ///< model_type: llama, mistral, qwen2, qwen3, gpt2
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t inner = 0;
  int64_t vocabulary = 0;
  int64_t positions = 256;
  bool tied = true;
  double initializer_range = 0.02;  ///< standard deviation of the matrices; transformers' default
  int64_t end_of_text = 0;
};

/// Writes config.json, generation_config.json and model.safetensors (fp32) into `directory`, which
/// must exist. Errors: the shape is not valid for a config.json (layout::model_config_from_json).
Status write_random_model(Files& files, const std::string& directory, const ModelShape& shape,
                          uint64_t seed);
/// The number of parameters. The shape must be valid for write_random_model().
int64_t parameter_count(const ModelShape& shape);

}  // namespace dsj::tools
