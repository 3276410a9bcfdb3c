// A Hugging Face config.json as the engine and the memory model read it: the shape of a model,
// torch-free. Refuses what the engine cannot run, with the field and the reason; never guesses.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::layout {

struct ModelConfig {
  std::string model_type;  ///< "qwen2"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;     ///< query heads
  int64_t num_kv_heads = 0;  ///< key and value heads; divides num_heads
  int64_t head_dim = 0;      ///< elements, even
  int64_t max_position = 0;  ///< tokens
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  bool tied = false;  ///< lm_head is the embedding
  bool qkv_bias = true;

  int64_t query_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
};

/// `where` names the file in messages. BadInput on an unknown model_type (lists the known ones) and
/// on every setting that would change the result and is not built: rope scaling, sliding windows in
/// use, dropout, another activation.
Result<ModelConfig> model_config_from_json(const nlohmann::json& config, const std::string& where);

/// Reads DIRECTORY/config.json.
Result<ModelConfig> read_model_config(const std::string& directory);

}  // namespace dsj::layout
