#include "common/json.h"

#include "common/cut_text.h"

namespace dsj {

const nlohmann::json& json_child(const nlohmann::json& object, const char* name) {
  static const nlohmann::json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

std::string json_text(const nlohmann::json& object, const char* name) {
  const nlohmann::json& value = json_child(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

std::optional<int64_t> json_whole(const nlohmann::json& object, const char* name) {
  const nlohmann::json& value = json_child(object, name);
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

bool json_flag(const nlohmann::json& object, const char* name) {
  const nlohmann::json& value = json_child(object, name);
  return value.is_boolean() && value.get<bool>();
}

std::string json_brief(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= 60 ? text : text::first_bytes(text, 57) + "...";
}

}  // namespace dsj
