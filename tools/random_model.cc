#include "tools/random_model.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "engine/weights/safetensors_writer.h"
#include "tools/random.h"

namespace dsj::tools {
namespace {

using Json = nlohmann::ordered_json;
constexpr float kInitializerRange = 0.02f;  // Qwen2Config's default

enum class Fill { Normal, Zeros, Ones };
struct Tensor {
  weights::TensorDeclaration declaration;
  Fill fill;
};

std::vector<Tensor> tensors_of(const ModelShape& shape) {
  std::vector<Tensor> tensors;
  const auto add = [&](std::string name, std::vector<int64_t> extents, Fill fill) {
    tensors.push_back({{std::move(name), weights::DType::F32, std::move(extents)}, fill});
  };
  const int64_t kv = shape.hidden / shape.heads * shape.kv_heads;
  add("model.embed_tokens.weight", {shape.vocabulary, shape.hidden}, Fill::Normal);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    add(prefix + "input_layernorm.weight", {shape.hidden}, Fill::Ones);
    for (const auto& [name, rows] :
         {std::pair{"q_proj", shape.hidden}, {"k_proj", kv}, {"v_proj", kv}}) {
      add(prefix + "self_attn." + name + ".weight", {rows, shape.hidden}, Fill::Normal);
      add(prefix + "self_attn." + name + ".bias", {rows}, Fill::Zeros);
    }
    add(prefix + "self_attn.o_proj.weight", {shape.hidden, shape.hidden}, Fill::Normal);
    add(prefix + "post_attention_layernorm.weight", {shape.hidden}, Fill::Ones);
    add(prefix + "mlp.gate_proj.weight", {shape.inner, shape.hidden}, Fill::Normal);
    add(prefix + "mlp.up_proj.weight", {shape.inner, shape.hidden}, Fill::Normal);
    add(prefix + "mlp.down_proj.weight", {shape.hidden, shape.inner}, Fill::Normal);
  }
  add("model.norm.weight", {shape.hidden}, Fill::Ones);
  if (!shape.tied) add("lm_head.weight", {shape.vocabulary, shape.hidden}, Fill::Normal);
  return tensors;
}

Json config_of(const ModelShape& shape) {
  return {{"architectures", {"Qwen2ForCausalLM"}},
          {"attention_dropout", 0.0},
          {"bos_token_id", shape.end_of_text},
          {"eos_token_id", shape.end_of_text},
          {"hidden_act", "silu"},
          {"hidden_size", shape.hidden},
          {"initializer_range", kInitializerRange},
          {"intermediate_size", shape.inner},
          {"max_position_embeddings", shape.positions},
          {"max_window_layers", shape.layers},
          {"model_type", "qwen2"},
          {"num_attention_heads", shape.heads},
          {"num_hidden_layers", shape.layers},
          {"num_key_value_heads", shape.kv_heads},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", shape.tied},
          {"torch_dtype", "float32"},
          {"use_cache", true},
          {"use_sliding_window", false},
          {"vocab_size", shape.vocabulary}};
}

std::vector<float> values_of(const Tensor& tensor, Random& random) {
  std::vector<float> values(static_cast<std::size_t>(tensor.declaration.elements()),
                            tensor.fill == Fill::Ones ? 1.0f : 0.0f);
  if (tensor.fill == Fill::Normal) {
    for (float& value : values) value = kInitializerRange * random.normal();
  }
  return values;
}

}  // namespace

int64_t parameter_count(const ModelShape& shape) {
  int64_t count = 0;
  for (const Tensor& tensor : tensors_of(shape)) count += tensor.declaration.elements();
  return count;
}

Status write_random_qwen2(Files& files, const std::string& directory, const ModelShape& shape,
                          uint64_t seed) {
  DSJ_TRY_STATUS(
      files.write_atomically(path_join(directory, "config.json"), config_of(shape).dump(2) + "\n"));
  const Json generation = {{"do_sample", false},
                           {"eos_token_id", {shape.end_of_text}},
                           {"pad_token_id", shape.end_of_text}};
  DSJ_TRY_STATUS(files.write_atomically(path_join(directory, "generation_config.json"),
                                        generation.dump(2) + "\n"));
  const std::vector<Tensor> tensors = tensors_of(shape);
  std::vector<weights::TensorDeclaration> declarations;
  for (const Tensor& tensor : tensors) declarations.push_back(tensor.declaration);
  DSJ_TRY(weights::SafetensorsWriter writer,
          weights::SafetensorsWriter::create(files, path_join(directory, "model.safetensors"),
                                             declarations));
  Random random(seed);
  for (const Tensor& tensor : tensors) {
    DSJ_TRY_STATUS(writer.append(tensor.declaration.name, values_of(tensor, random)));
  }
  return writer.finish();
}

}  // namespace dsj::tools
