#include "operator/render/egress.h"

#include <algorithm>

namespace dsj::op {
namespace {

using nlohmann::json;

std::unexpected<Error> wrong(const std::string& found) {
  return bad_input("found " + found +
                   ", expected a JSON list of NetworkPolicyEgressRules: "
                   "[{\"to\": [...], \"ports\": [{\"port\": 443}]}]");
}

bool is_list_of_objects(const json& list) {
  return list.is_array() &&
         std::ranges::all_of(list, [](const json& entry) { return entry.is_object(); });
}

}  // namespace

Result<std::optional<json>> egress_from_text(const std::string& text) {
  if (text.empty()) return std::optional<json>();
  json rules = json::parse(text, nullptr, false);
  if (!is_list_of_objects(rules)) return wrong(text);
  for (json& rule : rules) {
    for (const auto& [name, value] : rule.items()) {
      if (name != "to" && name != "ports") return wrong("the key \"" + name + "\"");
      if (!is_list_of_objects(value)) return wrong(value.dump() + " in \"" + name + "\"");
    }
    for (const char* name : {"to", "ports"}) {
      if (rule.contains(name) && rule[name].empty()) rule.erase(name);
    }
    if (!rule.contains("ports")) continue;
    for (json& port : rule["ports"]) {
      if (!port.contains("protocol")) port["protocol"] = "TCP";
    }
  }
  return std::optional<json>(std::move(rules));
}

}  // namespace dsj::op
