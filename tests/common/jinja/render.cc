// jinja_render: renders templates for tests/oracle/published_templates.py.
// Each line of the input is {"template": FILE, "now": SECONDS, "context": {...}}; each line of the output
// {"text": ..., "generated": [[FIRST, END]...]} in bytes, or {"error": ...}.
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "common/jinja/template.h"

namespace {

using dsj::Result;
using dsj::jinja::Template;
using nlohmann::json;

Result<Template> read_template(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return Template::parse(text, path.substr(path.rfind('/') + 1));
}

json answer(const Result<Template>& made, const std::string& line) {
  if (!made) return {{"error", made.error().to_string()}};
  const auto all = dsj::jinja::value_of_json(line);
  if (!all) return {{"error", all.error().to_string()}};
  dsj::jinja::Context context;
  for (const auto& [name, value] : all->dict()->named("context")->dict()->entries())
    context.emplace_back(name.bytes(), value);
  const auto text = made->render(context, {.now = all->dict()->named("now")->as_int()});
  if (!text) return {{"error", text.error().to_string()}};
  return {{"text", text->text}, {"generated", text->generated}};
}

}  // namespace

int main() {
  std::map<std::string, Result<Template>> templates;
  for (std::string line; std::getline(std::cin, line);) {
    const std::string path = json::parse(line).at("template");
    if (!templates.contains(path)) templates.emplace(path, read_template(path));
    std::cout << answer(templates.at(path), line).dump() << "\n";
  }
}
