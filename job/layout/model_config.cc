#include "job/layout/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/json_depth.h"
#include "job/layout/families/families.h"
#include "job/layout/reward_model.h"
#include "job/layout/shape/config_fields.h"

namespace dsj::layout {
namespace {

using nlohmann::json;

constexpr double kParametersMax = 1e14;

/// An approximate number of parameters: every product of two sizes that the model has.
double parameters_of(const ModelConfig& c) {
  const auto width = static_cast<double>(c.hidden_size);
  const auto of_heads = static_cast<double>(c.query_size() + c.kv_size());
  const double inner = static_cast<double>(c.intermediate_size) +
                       static_cast<double>(c.experts.count) * static_cast<double>(c.experts.inner) +
                       static_cast<double>(c.experts.shared_inner);
  const double layer = 2 * width * of_heads + 3 * width * inner;
  return static_cast<double>(c.num_layers) * layer +
         width * static_cast<double>(2 * c.vocab_size + c.max_position) +
         static_cast<double>(c.num_layers * c.layer_input) *
             static_cast<double>(c.vocab_size + c.hidden_size);
}

/// A method of quantization_config, by transformers' name.
struct Quantisation {
  std::string_view method;
  const char* by;  ///< shown to users
};
constexpr char kTakeTheOriginal[] = "take the model in 16 or 32 bits that it was made from";
constexpr Quantisation kQuantisations[] = {
    {"gptq", "GPTQ"},
    {"awq", "AWQ"},
    {"mxfp4", "MXFP4, which is built for gpt_oss alone"},
    {"fbgemm_fp8", "8-bit floats (fbgemm_fp8)"},
    {"modelopt", "NVIDIA's ModelOpt"},
    {"compressed-tensors", "compressed-tensors"},
    {"torchao", "torchao"},
    {"hqq", "HQQ"},
    {"quanto", "quanto"},
    {"aqlm", "AQLM"},
    {"eetq", "EETQ"},
    {"bitnet", "BitNet"},
};

bool is_true(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

/// Formats that are unpacked when they are read (engine/weights/formats/packed_weights.h).
bool is_unpacked(const std::string& method, const std::string& model_type) {
  return method == "fp8" || (method == "mxfp4" && model_type == "gpt_oss");
}

/// What transformers does if config.json has such an object: with bitsandbytes it quantizes weights
/// of any type while reading; with the others it reads quantized weights.
void refuse_quantised(const json& config, const std::string& model_type, Fields& fields) {
  const json* text = config.contains("text_config") ? &config["text_config"] : nullptr;
  for (const json* part : {&config, text}) {
    if (part == nullptr || !part->is_object()) continue;
    for (const char* key : {"quantization_config", "compression_config"}) {
      const auto found = part->find(key);
      if (found == part->end() || found->is_null() || (found->is_object() && found->empty()))
        continue;
      const json object = found->is_object() ? *found : json::object();
      const json named = object.value("quant_method", json());
      const std::string method = named.is_string() ? named.get<std::string>() : "";
      if (is_unpacked(method, model_type)) continue;
      const bool four = is_true(object, "load_in_4bit") || is_true(object, "_load_in_4bit");
      const bool eight = is_true(object, "load_in_8bit") || is_true(object, "_load_in_8bit");
      if (four || eight || method.starts_with("bitsandbytes")) {
        const json type = object.value("bnb_4bit_quant_type", json());
        fields.require(false, key,
                       std::string("names bitsandbytes") +
                           (four    ? ", in 4 bits"
                            : eight ? ", in 8 bits"
                                    : "") +
                           (four && type.is_string() ? " (" + type.get<std::string>() + ")" : "") +
                           ": quantised weights are not trained; " + kTakeTheOriginal +
                           ". If the weights beside it are such ones, remove the object from "
                           "config.json: they are trained in the type that the job asks for");
        return;
      }
      const auto known = std::ranges::find(kQuantisations, method, &Quantisation::method);
      const bool is_known = known != std::end(kQuantisations);
      fields.require(false, key,
                     "names " +
                         (is_known         ? std::string(known->by)
                          : method.empty() ? "no method that is known"
                                           : "\"" + method + "\"") +
                         ": quantised weights are not trained; " + kTakeTheOriginal);
      return;
    }
  }
}

}  // namespace

Result<ModelConfig> model_config_from_json(const json& config, const std::string& where) {
  if (!config.is_object()) return bad_input("expected a JSON object", where);
  Fields fields(config, where);
  ModelConfig out;
  out.model_type = fields.text("model_type", "");
  if (fields.failed()) return std::unexpected(fields.error());
  const Family* family = family_of(out.model_type);
  if (!family) {
    const char* needs = unbuilt(out.model_type);
    return bad_input("model_type \"" + out.model_type + "\" is not known to this engine" +
                         (needs ? std::string("; not built: ") + needs : ""),
                     where, known_families());
  }
  refuse_quantised(config, out.model_type, fields);
  family->read(config, fields, out);
  if (fields.failed()) return std::unexpected(fields.error());
  if (const double count = parameters_of(out); count > kParametersMax)
    return bad_input("the sizes make a model of about " + text::number(std::round(count / 1e12)) +
                         "e12 parameters; this engine counts up to " +
                         text::number(kParametersMax / 1e12) + "e12",
                     where);
  if (const auto deviation =
          config.find(out.model_type == "opt" ? "init_std" : "initializer_range");
      deviation != config.end() && deviation->is_number() && deviation->get<double>() > 0)
    out.score_deviation = deviation->get<double>();
  DSJ_TRY(const bool scored, is_reward_config(config, where));
  return scored ? as_reward_model(std::move(out), where) : std::move(out);
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
