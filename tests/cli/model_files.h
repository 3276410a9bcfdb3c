// Writes a model directory of any shape without a tokenizer, for runs with pre-tokenized rows.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "job/layout/units.h"

namespace dsj::cli {

/// A Qwen2 of 2 layers, hidden 64, vocabulary 512.
inline nlohmann::json small_config() {
  return {{"model_type", "qwen2"},    {"hidden_size", 64},
          {"vocab_size", 512},        {"intermediate_size", 128},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 256},
          {"hidden_act", "silu"},     {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},    {"tie_word_embeddings", false}};
}

/// Writes config.json and model.safetensors, all zeros.
inline void write_model(const std::filesystem::path& directory,
                        const nlohmann::json& config = small_config()) {
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "config.json") << config;
  const auto model = layout::model_config_from_json(config, "config.json");
  ASSERT_TRUE(model) << model.error().to_string();
  std::vector<weights::TensorDeclaration> tensors;
  for (const auto& unit : layout::units_of(*model))
    for (const auto& parameter : unit.parameters)
      tensors.push_back({parameter.name, weights::DType::F32, parameter.shape});
  PosixFiles files;
  auto writer = weights::SafetensorsWriter::create(files, directory / "model.safetensors", tensors);
  ASSERT_TRUE(writer) << writer.error().to_string();
  for (const auto& tensor : tensors)
    ASSERT_TRUE(writer->append(tensor.name, std::vector<float>(size_t(tensor.elements()))));
  ASSERT_TRUE(writer->finish());
}

/// `count` pre-tokenized rows of `length` tokens, as a JSON array.
inline nlohmann::json token_rows(int count, int length = 4) {
  const std::vector<int> ids(size_t(length), 7);
  return nlohmann::json(size_t(count), nlohmann::json{{"input_ids", ids}, {"labels", ids}});
}

}  // namespace dsj::cli
