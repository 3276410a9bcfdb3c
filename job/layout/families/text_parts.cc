#include "job/layout/families/family_readers.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "job/layout/families/family_fields.h"

namespace dsj::layout {

using nlohmann::json;

// ---- the text part of a model with a vision part

using Read = void (*)(const json& config, Fields& fields, ModelConfig& out);

namespace {

/// Reads text_config or, in older files, the fields beside the vision part. `absent`: the
/// defaults of transformers' class. tie_word_embeddings of the whole model overrides that of the
/// text part; with `either`, a tie of the text part counts beside a false of the whole model.
void read_text_part(const json& config, Fields& fields, Read read, const char* text_type,
                    const json& absent, ModelConfig& out, bool either = false) {
  const bool inside = config.contains("text_config");
  json text = absent;
  if (inside && !config["text_config"].is_object())
    return fields.require(false, "text_config", "is not an object");
  text.update(inside ? config["text_config"] : config);
  const bool ties_text = either && text.value("tie_word_embeddings", json()) == true;
  if (const auto tied = config.find("tie_word_embeddings"); tied != config.end() && !ties_text)
    text["tie_word_embeddings"] = *tied;
  Fields part(text, {}, inside ? "text_config." : "");
  if (inside) {
    const std::string type = part.text("model_type", text_type);
    part.require(type == text_type, "model_type", "is \"" + type + "\"; built is " + text_type);
  }
  plain_rope(text);
  read(text, part, out);
  out.is_text_part = true;
  fields.inherit(part);
}

/// A causal model, including its head, is a module of the whole model.
void under_language_model(ModelConfig& out) {
  out.names.base = "language_model.model.";
  out.names.head = "language_model.lm_head";
}

}  // namespace

void read_gemma3_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_gemma3, "gemma3_text",
                 {{"vocab_size", 262208},
                  {"hidden_size", 2304},
                  {"intermediate_size", 9216},
                  {"num_hidden_layers", 26},
                  {"num_attention_heads", 8},
                  {"num_key_value_heads", 4}},
                 out);
  under_language_model(out);
}

namespace {

/// transformers' defaults of Gemma4TextConfig, which both types have.
void read_gemma4_kind(const json& config, Fields& fields, Read read, const char* text_type,
                      ModelConfig& out) {
  read_text_part(config, fields, read, text_type,
                 {{"vocab_size", 262144},
                  {"hidden_size", 2304},
                  {"intermediate_size", 9216},
                  {"num_hidden_layers", 30},
                  {"num_attention_heads", 8},
                  {"num_key_value_heads", 4}},
                 out);
  out.names.base = "model.language_model.";
}

}  // namespace

void read_gemma4_part(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma4_kind(config, fields, read_gemma4, "gemma4_text", out);
}

void read_gemma4_unified_part(const json& config, Fields& fields, ModelConfig& out) {
  read_gemma4_kind(config, fields, read_gemma4_unified, "gemma4_unified_text", out);
}

namespace {

/// One of several families, in files with LLaVA's names. The first is the default of text_config.
void read_one_of(const json& config, Fields& fields,
                 std::initializer_list<std::pair<const char*, Read>> known, ModelConfig& out,
                 bool either = false) {
  const auto text = config.find("text_config");
  const bool inside = text != config.end() && text->is_object();
  const json type = inside ? text->value("model_type", json()) : json();
  const auto* found =
      std::ranges::find_if(known, [&](const auto& one) { return type == one.first; });
  if (found == known.end() && type.is_string()) {
    std::string names;
    for (const auto& [name, read] : known) names += (names.empty() ? "" : ", ") + std::string(name);
    return fields.require(false, "text_config.model_type",
                          "is \"" + type.get<std::string>() + "\"; built are " + names);
  }
  if (found == known.end()) found = known.begin();
  read_text_part(config, fields, found->second, found->first, json::object(), out, either);
  under_language_model(out);
}

/// transformers reads layer_types of a whole model of this type, not of a text part.
void read_mistral_text(const json& config, Fields& fields, ModelConfig& out) {
  json plain = config;
  plain.erase("layer_types");
  Fields part(plain, {}, "text_config.");
  read_mistral(plain, part, out);
  fields.inherit(part);
}

}  // namespace

void read_mistral3_part(const json& config, Fields& fields, ModelConfig& out) {
  read_one_of(config, fields, {{"mistral", read_mistral_text}, {"ministral3", read_ministral3}},
              out);
}

void read_internvl_part(const json& config, Fields& fields, ModelConfig& out) {
  read_one_of(config, fields,
              {{"qwen2", read_qwen2},
               {"qwen3", read_qwen3},
               {"qwen3_moe", read_qwen3_moe},
               {"llama", read_llama}},
              out);
}

void read_llava_next_part(const json& config, Fields& fields, ModelConfig& out) {
  read_one_of(config, fields,
              {{"llama", read_llama}, {"mistral", read_mistral_text}, {"qwen2", read_qwen2}}, out);
}

void read_llava_onevision_part(const json& config, Fields& fields, ModelConfig& out) {
  read_one_of(config, fields, {{"qwen2", read_qwen2}, {"qwen3", read_qwen3}}, out, true);
}

void read_aya_vision_part(const json& config, Fields& fields, ModelConfig& out) {
  read_one_of(config, fields, {{"cohere2", read_cohere2}, {"cohere", read_cohere}}, out);
  out.logits_scale = 1;  // the class of the whole model does not have it
}

namespace {

void read_qwen_vl_part(const json& config, Fields& fields, const char* type, ModelConfig& out) {
  read_text_part(config, fields, read_qwen2, type,
                 {{"num_key_value_heads", 8},
                  {"rms_norm_eps", 1e-5},
                  {"rope_theta", 1e6},
                  {"max_window_layers", 80}},
                 out, true);
}

}  // namespace

void read_qwen2_vl_part(const json& config, Fields& fields, ModelConfig& out) {
  read_qwen_vl_part(config, fields, "qwen2_vl_text", out);
}

void read_qwen2_5_vl_part(const json& config, Fields& fields, ModelConfig& out) {
  read_qwen_vl_part(config, fields, "qwen2_5_vl_text", out);
}

void read_qwen3_vl_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(
      config, fields, read_qwen3, "qwen3_vl_text",
      {{"num_key_value_heads", 32}, {"max_position_embeddings", 128000}, {"rope_theta", 500000}},
      out);
  out.names.base = "model.language_model.";
}

/// The experts are in one tensor each, transposed.
void read_qwen3_vl_moe_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_qwen3_moe, "qwen3_vl_moe_text",
                 {{"num_key_value_heads", 16},
                  {"max_position_embeddings", 128000},
                  {"rope_theta", 500000},
                  {"moe_intermediate_size", 1408},
                  {"num_experts_per_tok", 4},
                  {"num_experts", 60}},
                 out);
  out.names.base = "model.language_model.";
  out.experts.normalized = out.experts.stacked = out.experts.turned = true;
}

/// The whole model's tie, also by its older name, overrides that of the text part; absent: tied.
void read_lfm2_vl_part(const json& config, Fields& fields, ModelConfig& out) {
  json plain = config;
  if (plain.contains("tie_embedding"))
    plain["tie_word_embeddings"] = json(plain["tie_embedding"]);
  else if (!plain.contains("tie_word_embeddings"))
    plain["tie_word_embeddings"] = true;
  if (const auto text = plain.find("text_config"); text != plain.end() && text->is_object())
    text->erase("tie_embedding");
  read_text_part(plain, fields, read_lfm2, "lfm2",
                 {{"vocab_size", 65536},
                  {"hidden_size", 2560},
                  {"intermediate_size", 12288},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32}},
                 out);
  out.names.base = "model.language_model.";
}

void read_qwen3_5_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_qwen3_5, "qwen3_5_text",
                 {{"vocab_size", 248320},
                  {"hidden_size", 4096},
                  {"intermediate_size", 12288},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 16},
                  {"num_key_value_heads", 4}},
                 out);
  out.names.base = "model.language_model.";
}

void read_qwen3_5_moe_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_qwen3_5_moe, "qwen3_5_moe_text",
                 {{"vocab_size", 248320},
                  {"hidden_size", 2048},
                  {"num_hidden_layers", 40},
                  {"num_attention_heads", 16}},
                 out);
  out.names.base = "model.language_model.";
}

void read_llava_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_llama, "llama",
                 {{"vocab_size", 32000},
                  {"hidden_size", 4096},
                  {"intermediate_size", 11008},
                  {"num_hidden_layers", 32},
                  {"num_attention_heads", 32}},
                 out, true);
  under_language_model(out);
}

void read_smolvlm_part(const json& config, Fields& fields, ModelConfig& out) {
  read_text_part(config, fields, read_llama, "llama", json::object(), out);
  out.names.base = "model.text_model.";
}

}  // namespace dsj::layout
