#include "tools/random_model.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "common/check.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "job/layout/units.h"
#include "tools/random.h"

namespace dsj::tools {
namespace {

using Json = nlohmann::ordered_json;

Json gpt2_config(const ModelShape& shape) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"activation_function", "gelu_new"},
          {"attn_pdrop", 0.0},
          {"bos_token_id", shape.end_of_text},
          {"embd_pdrop", 0.0},
          {"eos_token_id", shape.end_of_text},
          {"initializer_range", shape.initializer_range},
          {"layer_norm_epsilon", 1e-5},
          {"n_embd", shape.hidden},
          {"n_head", shape.heads},
          {"n_inner", shape.inner},
          {"n_layer", shape.layers},
          {"n_positions", shape.positions},
          {"resid_pdrop", 0.0},
          {"tie_word_embeddings", shape.tied},
          {"torch_dtype", "float32"},
          {"use_cache", true},
          {"vocab_size", shape.vocabulary}};
}

Json config_of(const ModelShape& shape) {
  if (shape.family == "gpt2") return gpt2_config(shape);
  const std::string architecture = shape.family == "llama"     ? "LlamaForCausalLM"
                                   : shape.family == "mistral" ? "MistralForCausalLM"
                                   : shape.family == "qwen3"   ? "Qwen3ForCausalLM"
                                                               : "Qwen2ForCausalLM";
  Json config = {{"architectures", {architecture}},
                 {"attention_dropout", 0.0},
                 {"bos_token_id", shape.end_of_text},
                 {"eos_token_id", shape.end_of_text},
                 {"hidden_act", "silu"},
                 {"hidden_size", shape.hidden},
                 {"initializer_range", shape.initializer_range},
                 {"intermediate_size", shape.inner},
                 {"max_position_embeddings", shape.positions},
                 {"model_type", shape.family},
                 {"num_attention_heads", shape.heads},
                 {"num_hidden_layers", shape.layers},
                 {"num_key_value_heads", shape.kv_heads},
                 {"rms_norm_eps", 1e-6},
                 {"rope_theta", 10000.0},
                 {"tie_word_embeddings", shape.tied},
                 {"torch_dtype", "float32"},
                 {"use_cache", true},
                 {"vocab_size", shape.vocabulary}};
  if (shape.family != "llama") config["sliding_window"] = nullptr;
  if (shape.family.starts_with("qwen")) {
    config["max_window_layers"] = shape.layers;
    config["use_sliding_window"] = false;
  }
  if (shape.family == "qwen3") config["head_dim"] = shape.hidden / shape.heads;
  return config;
}

Result<std::vector<layout::Parameter>> parameters_of(const ModelShape& shape) {
  DSJ_TRY(const auto config, layout::model_config_from_json(config_of(shape), "the model's shape"));
  std::vector<layout::Parameter> parameters;
  for (const auto& unit : layout::units_of(config)) {
    parameters.insert(parameters.end(), unit.parameters.begin(), unit.parameters.end());
  }
  return parameters;
}

/// Matrices from a normal distribution, biases 0, norms 1.
std::vector<float> values_of(const layout::Parameter& parameter, float range, Random& random) {
  const bool matrix = parameter.shape.size() > 1, bias = parameter.name.ends_with("bias");
  std::vector<float> values(static_cast<std::size_t>(parameter.numel()), bias ? 0.0f : 1.0f);
  if (matrix) {
    for (float& value : values) value = range * random.normal();
  }
  return values;
}

}  // namespace

int64_t parameter_count(const ModelShape& shape) {
  const auto parameters = parameters_of(shape);
  DSJ_CHECK(parameters.has_value());
  int64_t count = 0;
  for (const auto& parameter : *parameters) count += parameter.numel();
  return count;
}

Status write_random_model(Files& files, const std::string& directory, const ModelShape& shape,
                          uint64_t seed) {
  DSJ_TRY(const auto parameters, parameters_of(shape));
  DSJ_TRY_STATUS(
      files.write_atomically(path_join(directory, "config.json"), config_of(shape).dump(2) + "\n"));
  const Json generation = {{"do_sample", false},
                           {"eos_token_id", {shape.end_of_text}},
                           {"pad_token_id", shape.end_of_text}};
  DSJ_TRY_STATUS(files.write_atomically(path_join(directory, "generation_config.json"),
                                        generation.dump(2) + "\n"));
  std::vector<weights::TensorDeclaration> declarations;
  for (const auto& parameter : parameters) {
    declarations.push_back({parameter.name, weights::DType::F32, parameter.shape});
  }
  DSJ_TRY(weights::SafetensorsWriter writer,
          weights::SafetensorsWriter::create(files, path_join(directory, "model.safetensors"),
                                             declarations));
  Random random(seed);
  const auto range = static_cast<float>(shape.initializer_range);
  for (const auto& parameter : parameters) {
    DSJ_TRY_STATUS(writer.append(parameter.name, values_of(parameter, range, random)));
  }
  return writer.finish();
}

}  // namespace dsj::tools
