#include "engine/weights/eos_token.h"

#include <nlohmann/json.hpp>

namespace dsj::weights {
namespace {

using nlohmann::ordered_json;

/// The id, followed by the other ids of `before`.
ordered_json ids_with(int32_t id, const ordered_json& before) {
  ordered_json ids = ordered_json::array({id});
  for (const auto& one : before.is_array() ? before : ordered_json::array({before})) {
    if (one.is_number_integer() && one != id) ids.push_back(one);
  }
  return ids;
}

}  // namespace

std::string with_eos(std::string_view file_name, std::string content, const EosToken& eos) {
  const bool config = file_name == "config.json",
             generation = file_name == "generation_config.json",
             tokenizer = file_name == "tokenizer_config.json",
             map = file_name == "special_tokens_map.json";
  if (!config && !generation && !tokenizer && !map) return content;
  auto object = ordered_json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return content;
  if (config || generation) {
    ordered_json& ids = object["eos_token_id"];
    ids = generation || ids.is_array() ? ids_with(eos.id, ids) : ordered_json(eos.id);
  } else if (tokenizer || object.contains("eos_token")) {
    object["eos_token"] = eos.text;
  }
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dsj::weights
