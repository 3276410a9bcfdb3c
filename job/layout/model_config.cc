#include "job/layout/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/json_depth.h"
#include "job/layout/config_fields.h"

namespace dsj::layout {
namespace {

using nlohmann::json;
using Scaling = RopeConfig::Scaling;

// Far above every model that exists. Within them no size, count or product of the plan overflows,
// and no list is too long to make. Token ids and positions are 32-bit numbers.
constexpr int64_t kWidthMax = int64_t{1} << 20;  ///< hidden size, heads, elements of a head
constexpr int64_t kInnerMax = int64_t{1} << 23;
constexpr int64_t kLayersMax = 10'000;
constexpr int64_t kIndexMax = INT32_MAX;  ///< tokens of a vocabulary, positions
constexpr double kParametersMax = 1e14;
constexpr double kThetaMax = 1e15;
constexpr double kFactorMax = 1e9;
constexpr double kTiny = 1e-300;  ///< the least positive number that is taken where 0 is not

constexpr char kKnown[] =
    "known model types: llama (Llama 2, 3), mistral, qwen2 (Qwen1.5, Qwen2, Qwen2.5), qwen3, gpt2";

/// Written as null, which differs from missing if the default is not null.
bool is_null(const json& config, const char* key) {
  const auto it = config.find(key);
  return it != config.end() && it->is_null();
}

void read_scaling(const json& object, const char* key, Fields& fields, ModelConfig& out) {
  Fields rope(object, {}, std::string(key) + ".");
  RopeConfig& r = out.rope;
  r.theta = rope.number("rope_theta", r.theta, kTiny, kThetaMax);
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  rope.require(rope.number("partial_rotary_factor", 1) == 1, "partial_rotary_factor",
               "is not 1; partial rotary embedding is not built");
  if (type == "linear" || type == "dynamic") {
    r.scaling = type == "linear" ? Scaling::Linear : Scaling::Dynamic;
    r.factor = rope.required("factor", 0, kFactorMax);
    r.original_max = out.max_position;
  } else if (type == "llama3") {
    r.scaling = Scaling::Llama3;
    r.factor = rope.required("factor", 0, kFactorMax);
    r.low_freq_factor = rope.required("low_freq_factor", 0, kFactorMax);
    r.high_freq_factor = rope.required("high_freq_factor", r.low_freq_factor, kFactorMax);
    r.original_max = rope.positive("original_max_position_embeddings", kIndexMax, out.max_position);
  } else {
    rope.require(type == "default", "rope_type",
                 "is \"" + type + "\"; built are default, linear, dynamic and llama3");
  }
  fields.inherit(rope);
}

/// transformers 5 keeps rope_theta and the scaling in rope_parameters; older versions keep
/// rope_theta beside rope_scaling. rope_scaling wins if both are given.
void read_rope(const json& config, Fields& fields, ModelConfig& out) {
  out.rope.theta = fields.number("rope_theta", 10000.0, kTiny, kThetaMax);
  fields.require(fields.number("partial_rotary_factor", 1) == 1, "partial_rotary_factor",
                 "is not 1; partial rotary embedding is not built");
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null() || (it->is_object() && it->empty())) continue;
    if (!it->is_object()) return fields.require(false, key, "is not an object");
    return read_scaling(*it, key, fields, out);
  }
}

/// Qwen2 and Qwen3: use_sliding_window; per layer either layer_types or max_window_layers.
void read_qwen_windows(const json& config, Fields& fields, ModelConfig& out) {
  const bool used = fields.flag("use_sliding_window", false) && !is_null(config, "sliding_window");
  const int64_t window = used ? fields.positive("sliding_window", kIndexMax, 4096) : 0;
  const int64_t first =
      used ? fields.whole("max_window_layers", 0, INT64_MAX, 28) : out.num_layers;
  out.windows.assign(static_cast<size_t>(out.num_layers), 0);
  for (int64_t layer = first; layer < out.num_layers; ++layer) out.windows[layer] = window;
  if (fields.absent("layer_types")) return;
  const json& types = config["layer_types"];
  const bool fits = types.is_array() && static_cast<int64_t>(types.size()) == out.num_layers;
  fields.require(fits, "layer_types", "is not a list with one entry per layer");
  for (int64_t layer = 0; fits && layer < out.num_layers; ++layer) {
    const bool slides = types[layer] == "sliding_attention";
    fields.require(slides || types[layer] == "full_attention", "layer_types",
                   "has " + json_brief(types[layer]) + "; built are full and sliding attention");
    fields.require(!slides || used, "layer_types",
                   "asks for sliding attention, but use_sliding_window is off");
    out.windows[layer] = slides ? window : 0;
  }
}

/// The fields that the four llama-like families share.
void read_llama_shape(const json& config, Fields& fields, ModelConfig& out) {
  const std::string& type = out.model_type;
  out.vocab_size = fields.positive("vocab_size", kIndexMax);
  out.hidden_size = fields.positive("hidden_size", kWidthMax);
  out.intermediate_size = fields.positive("intermediate_size", kInnerMax);
  out.num_layers = fields.positive("num_hidden_layers", kLayersMax);
  out.num_heads = fields.positive("num_attention_heads", kWidthMax);
  out.num_kv_heads = fields.positive("num_key_value_heads", kWidthMax, out.num_heads);
  const int64_t positions = type == "llama" ? 2048 : type == "mistral" ? 131072 : 32768;
  out.max_position = fields.positive("max_position_embeddings", kIndexMax, positions);
  out.norm_eps = fields.number("rms_norm_eps", 1e-6, 0, 1);
  out.tied = fields.flag("tie_word_embeddings", false);
  // Qwen3's head_dim has its own default.
  const bool derived = type != "qwen3" && fields.absent("head_dim");
  fields.require(!derived || out.hidden_size % out.num_heads == 0, "num_attention_heads",
                 "does not divide hidden_size");
  out.head_dim = fields.positive(
      "head_dim", kWidthMax,
      type == "qwen3" ? 128 : std::max<int64_t>(out.hidden_size / out.num_heads, 1));
  fields.require(out.num_heads * out.head_dim <= kWidthMax, "head_dim",
                 "times num_attention_heads is above " + std::to_string(kWidthMax));
  read_rope(config, fields, out);
  fields.require(out.num_heads % out.num_kv_heads == 0, "num_key_value_heads",
                 "does not divide num_attention_heads");
  fields.require(out.head_dim % 2 == 0, "head_dim", "is odd; rotary embedding needs pairs");
  fields.require(fields.text("hidden_act", "silu") == "silu", "hidden_act",
                 "is not \"silu\", the only activation of this model family here");
  out.dropout.attention = fields.probability("attention_dropout", 0.0);
}

void read_llama_like(const json& config, Fields& fields, ModelConfig& out) {
  read_llama_shape(config, fields, out);
  const std::string& type = out.model_type;
  out.qkv_bias = type == "qwen2";
  if (type == "llama" || type == "qwen3") {
    out.qkv_bias = out.o_bias = fields.flag("attention_bias", false);
  }
  out.qk_norm = type == "qwen3";
  if (type == "llama") {
    out.mlp_bias = fields.flag("mlp_bias", false);
    fields.require(fields.whole("pretraining_tp", 0, INT64_MAX, 1) == 1, "pretraining_tp",
                   "is not 1; sliced products are not built, and 1 computes the same numbers");
  }
  if (type == "mistral" && !is_null(config, "sliding_window")) {
    out.windows.assign(static_cast<size_t>(out.num_layers),
                       fields.positive("sliding_window", kIndexMax, 4096));
  }
  if (type == "qwen2" || type == "qwen3") read_qwen_windows(config, fields, out);
}

void read_gpt2(Fields& fields, ModelConfig& out) {
  out.block = Block::Gpt2;
  out.vocab_size = fields.positive("vocab_size", kIndexMax);
  out.hidden_size = fields.positive("n_embd", kWidthMax);
  out.intermediate_size = fields.positive("n_inner", kInnerMax, 4 * out.hidden_size);
  out.num_layers = fields.positive("n_layer", kLayersMax);
  out.num_heads = out.num_kv_heads = fields.positive("n_head", kWidthMax);
  out.max_position = fields.positive("n_positions", kIndexMax, 1024);
  out.norm_eps = fields.number("layer_norm_epsilon", 1e-5, 0, 1);
  out.tied = fields.flag("tie_word_embeddings", true);
  out.head_dim = std::max<int64_t>(out.hidden_size / out.num_heads, 1);
  out.o_bias = out.mlp_bias = true;
  out.scale_attention = fields.flag("scale_attn_weights", true);
  out.scale_by_layer = fields.flag("scale_attn_by_inverse_layer_idx", false);
  // It asks for fp32 scores and probabilities, which are fp32 here anyway.
  fields.flag("reorder_and_upcast_attn", false);
  out.dropout = {.embedding = fields.probability("embd_pdrop", 0.1),
                 .attention = fields.probability("attn_pdrop", 0.1),
                 .residual = fields.probability("resid_pdrop", 0.1)};
  fields.require(out.hidden_size % out.num_heads == 0, "n_head", "does not divide n_embd");
  fields.require(fields.text("activation_function", "gelu_new") == "gelu_new",
                 "activation_function", "is not \"gelu_new\", the only one built for this family");
  fields.require(!fields.flag("add_cross_attention", false), "add_cross_attention",
                 "is true; an encoder beside the model is not built");
}

/// Parameters, about: every product of two sizes that the model has.
double parameters_of(const ModelConfig& c) {
  const auto width = static_cast<double>(c.hidden_size);
  const auto of_heads = static_cast<double>(c.query_size() + c.kv_size());
  const double layer = 2 * width * of_heads + 3 * width * static_cast<double>(c.intermediate_size);
  return static_cast<double>(c.num_layers) * layer +
         width * static_cast<double>(2 * c.vocab_size + c.max_position);
}

}  // namespace

double ModelConfig::attention_scale(int64_t layer) const {
  const double scale = scale_attention ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
  return scale_by_layer ? scale / static_cast<double>(layer + 1) : scale;
}

int64_t ModelConfig::longest_sequence() const {
  const bool grows = block == Block::Llama && rope.scaling == Scaling::Dynamic;
  return grows ? INT64_MAX : max_position;
}

Result<ModelConfig> model_config_from_json(const json& config, const std::string& where) {
  if (!config.is_object()) return bad_input("expected a JSON object", where);
  Fields fields(config, where);
  ModelConfig out;
  out.model_type = fields.text("model_type", "");
  if (fields.failed()) return std::unexpected(fields.error());
  const std::string& type = out.model_type;
  if (type == "llama" || type == "mistral" || type == "qwen2" || type == "qwen3") {
    read_llama_like(config, fields, out);
  } else if (type == "gpt2") {
    read_gpt2(fields, out);
  } else {
    return bad_input("model_type \"" + type + "\" is not known to this engine", where, kKnown);
  }
  if (fields.failed()) return std::unexpected(fields.error());
  if (const double count = parameters_of(out); count > kParametersMax)
    return bad_input("the sizes make a model of about " + text::number(std::round(count / 1e12)) +
                         "e12 parameters; this engine counts up to " +
                         text::number(kParametersMax / 1e12) + "e12",
                     where);
  return out;
}

namespace {

std::unexpected<Error> no_config(const std::string& directory, const std::string& path) {
  constexpr char kGguf[] =
      "take the Hugging Face model that it was made from (config.json and safetensors)";
  constexpr char kExpected[] = "expected a Hugging Face model directory with config.json";
  std::error_code none;
  if (std::filesystem::is_regular_file(directory, none)) {
    if (directory.ends_with(".gguf"))
      return bad_input("is a GGUF file, whose weights are quantised for llama.cpp", directory,
                       kGguf);
    return bad_input("is a file", directory, kExpected);
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    if (entry.path().extension() != ".gguf") continue;
    return bad_input(
        "holds GGUF files, whose weights are quantised for llama.cpp, and no config.json",
        directory, kGguf);
  }
  return bad_input("cannot be read", path, kExpected);
}

}  // namespace

/// "PATH:LINE:COLUMN" of a byte, counted from 1.
static std::string place_in(const std::string& path, std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, byte > 0 ? byte - 1 : 0);
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return path + ":" + std::to_string(1 + std::ranges::count(before, '\n')) + ":" +
         std::to_string(before.size() - line_start + 1);
}

Result<ModelConfig> read_model_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  std::ifstream file(path);
  if (!file) return no_config(directory, path);
  std::stringstream text;
  text << file.rdbuf();
  if (json_depth(text.str()) > kJsonDepthMax) return bad_input("is nested too deep", path);
  try {
    return model_config_from_json(json::parse(text.str()), path);
  } catch (const json::parse_error& error) {
    const bool ends = error.byte > text.str().size();
    return bad_input(ends ? "is not JSON: the text ends too early" : "is not JSON",
                     place_in(path, text.str(), error.byte));
  } catch (const json::exception&) {
    return bad_input("has a number that is not finite", path);
  }
}

}  // namespace dsj::layout
