#include "job/layout/model_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/json_depth.h"
#include "job/layout/config_fields.h"
#include "job/layout/families.h"

namespace dsj::layout {
namespace {

using nlohmann::json;

constexpr double kParametersMax = 1e14;

/// Parameters, about: every product of two sizes that the model has.
double parameters_of(const ModelConfig& c) {
  const auto width = static_cast<double>(c.hidden_size);
  const auto of_heads = static_cast<double>(c.query_size() + c.kv_size());
  const double inner = static_cast<double>(c.intermediate_size) +
                       static_cast<double>(c.experts.count) * static_cast<double>(c.experts.inner) +
                       static_cast<double>(c.experts.shared_inner);
  const double layer = 2 * width * of_heads + 3 * width * inner;
  return static_cast<double>(c.num_layers) * layer +
         width * static_cast<double>(2 * c.vocab_size + c.max_position);
}

}  // namespace

Result<ModelConfig> model_config_from_json(const json& config, const std::string& where) {
  if (!config.is_object()) return bad_input("expected a JSON object", where);
  Fields fields(config, where);
  ModelConfig out;
  out.model_type = fields.text("model_type", "");
  if (fields.failed()) return std::unexpected(fields.error());
  const Family* family = family_of(out.model_type);
  if (!family)
    return bad_input("model_type \"" + out.model_type + "\" is not known to this engine", where,
                     known_families());
  family->read(config, fields, out);
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
