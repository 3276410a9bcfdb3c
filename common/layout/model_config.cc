#include "common/layout/model_config.h"

#include <fstream>
#include <sstream>

namespace dsj::layout {
namespace {

using nlohmann::json;

/// Reads typed fields and remembers the first thing that is wrong.
class Fields {
 public:
  Fields(const json& object, const std::string& where) : object_(object), where_(where) {}

  /// `fallback` 0: the field must be there.
  int64_t positive(const char* key, int64_t fallback = 0) {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) {
      if (fallback <= 0) note(key, "is missing; expected a positive integer");
      return std::max<int64_t>(fallback, 1);
    }
    if (!it->is_number_integer() || it->get<int64_t>() <= 0) {
      note(key, "is " + it->dump() + "; expected a positive integer");
      return 1;
    }
    return it->get<int64_t>();
  }

  double number(const char* key, double fallback) {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) return fallback;
    if (it->is_number()) return it->get<double>();
    note(key, "is " + it->dump() + "; expected a number");
    return fallback;
  }

  bool flag(const char* key, bool fallback) {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) return fallback;
    if (it->is_boolean()) return it->get<bool>();
    note(key, "is " + it->dump() + "; expected true or false");
    return fallback;
  }

  std::string text(const char* key, const std::string& fallback) {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) return fallback;
    if (it->is_string()) return it->get<std::string>();
    note(key, "is " + it->dump() + "; expected a string");
    return fallback;
  }

  void require(bool ok, const char* key, const std::string& otherwise) {
    if (!ok) note(key, otherwise);
  }

  bool failed() const { return !problem_.empty(); }
  Error error() const { return {ErrorKind::BadInput, problem_, where_, {}}; }

 private:
  void note(const std::string& key, const std::string& what) {
    if (problem_.empty()) problem_ = "\"" + key + "\" " + what;
  }

  const json& object_;
  const std::string& where_;
  std::string problem_;
};

/// transformers 5 moved rope_theta and rope_scaling into rope_parameters; both places are read.
void read_rope(const json& config, Fields& fields, ModelConfig& out) {
  out.rope_theta = fields.number("rope_theta", 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = config.find(key);
    if (it == config.end() || !it->is_object()) continue;
    Fields rope(*it, key);
    out.rope_theta = rope.number("rope_theta", out.rope_theta);
    const std::string type = rope.text("rope_type", rope.text("type", "default"));
    fields.require(!rope.failed(), key, "has a field of the wrong type");
    fields.require(type == "default", key,
                   "asks for rope type \"" + type + "\", which this engine does not build yet");
  }
}

}  // namespace

Result<ModelConfig> model_config_from_json(const json& config, const std::string& where) {
  if (!config.is_object()) return bad_input("expected a JSON object", where);
  Fields fields(config, where);
  ModelConfig out;
  out.model_type = fields.text("model_type", "");
  if (fields.failed()) return std::unexpected(fields.error());
  if (out.model_type != "qwen2") {
    return bad_input("model_type \"" + out.model_type + "\" is not known to this engine", where,
                     "known model types: qwen2 (Qwen1.5, Qwen2, Qwen2.5)");
  }
  out.vocab_size = fields.positive("vocab_size");
  out.hidden_size = fields.positive("hidden_size");
  out.intermediate_size = fields.positive("intermediate_size");
  out.num_layers = fields.positive("num_hidden_layers");
  out.num_heads = fields.positive("num_attention_heads");
  out.num_kv_heads = fields.positive("num_key_value_heads", out.num_heads);
  out.max_position = fields.positive("max_position_embeddings", 32768);
  out.rms_norm_eps = fields.number("rms_norm_eps", 1e-6);
  out.tied = fields.flag("tie_word_embeddings", false);
  out.head_dim = fields.positive("head_dim", std::max<int64_t>(out.hidden_size / out.num_heads, 1));
  read_rope(config, fields, out);
  const bool own_head_dim = config.contains("head_dim") && !config["head_dim"].is_null();
  fields.require(own_head_dim || out.hidden_size % out.num_heads == 0, "num_attention_heads",
                 "does not divide hidden_size");
  fields.require(out.num_heads % out.num_kv_heads == 0, "num_key_value_heads",
                 "does not divide num_attention_heads");
  fields.require(out.head_dim % 2 == 0, "head_dim", "is odd; rotary embedding needs pairs");
  fields.require(fields.text("hidden_act", "silu") == "silu", "hidden_act",
                 "is not \"silu\", the only activation of this model family here");
  fields.require(!fields.flag("use_sliding_window", false), "use_sliding_window",
                 "is true; sliding-window attention is not built yet");
  fields.require(fields.number("attention_dropout", 0.0) == 0.0, "attention_dropout",
                 "is not 0; attention dropout is not built yet");
  if (fields.failed()) return std::unexpected(fields.error());
  return out;
}

Result<ModelConfig> read_model_config(const std::string& directory) {
  const std::string path = directory + "/config.json";
  std::ifstream file(path);
  if (!file) {
    return bad_input("cannot be read", path,
                     "expected a Hugging Face model directory with config.json");
  }
  std::stringstream text;
  text << file.rdbuf();
  const json config = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded()) return bad_input("is not JSON", path);
  return model_config_from_json(config, path);
}

}  // namespace dsj::layout
