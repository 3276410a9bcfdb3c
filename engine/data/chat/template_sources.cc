#include "engine/data/chat/template_sources.h"

#include "engine/data/chat/named_templates.h"

namespace dsj::data {
namespace {

using nlohmann::json;

Result<TemplateSources> of_config(const json& config, const std::string& path) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return TemplateSources{};
  if (found->is_string()) return TemplateSources{path, found->get<std::string>(), ""};
  TemplateSources sources{path, "", ""};
  const auto take = [&](const json& name, const json& source) {
    if (!name.is_string() || !source.is_string()) return;
    if (name == "default") sources.source = source.get<std::string>();
    if (name == "tool_use") sources.tool_source = source.get<std::string>();
  };
  if (found->is_object()) {
    for (const auto& [name, source] : found->items()) take(name, source);
  } else if (found->is_array()) {
    for (const json& one : *found) {
      if (one.is_object()) take(one.value("name", json()), one.value("template", json()));
    }
  }
  if (!sources.source.empty()) return sources;
  return bad_input("chat_template has no entry named default", path, kChatTemplateHint);
}

}  // namespace

Result<json> json_object_of(Files& files, const std::string& path) {
  DSJ_TRY(const bool there, files.exists(path));
  if (!there) return json::object();
  DSJ_TRY(const std::string text, files.read_all(path));
  json config = json::parse(text, nullptr, false);
  if (!config.is_object()) return bad_input("is not a JSON object", path);
  return config;
}

Result<TemplateSources> template_sources(Files& files, const std::string& model_dir) {
  const std::string own = path_join(model_dir, "chat_template.jinja");
  DSJ_TRY(const bool has_own, files.exists(own));
  if (has_own) {
    DSJ_TRY(std::string source, files.read_all(own, kTemplateBytesMax));
    return TemplateSources{own, std::move(source), ""};
  }
  const std::string legacy = path_join(model_dir, "chat_template.json");
  DSJ_TRY(const json other, json_object_of(files, legacy));
  if (other.contains("chat_template")) return of_config(other, legacy);
  const std::string path = path_join(model_dir, "tokenizer_config.json");
  DSJ_TRY(const json config, json_object_of(files, path));
  return of_config(config, path);
}

}  // namespace dsj::data
