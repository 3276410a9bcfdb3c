#include "operator/observe/child_content.h"

#include <functional>

namespace dsj::op {
namespace {

using nlohmann::json;

/// The fields in `names` that the object has. A server adds others.
json only(const json& object, std::initializer_list<const char*> names) {
  json kept = json::object();
  if (!object.is_object()) return kept;
  for (const char* name : names) {
    if (const auto found = object.find(name); found != object.end()) kept[name] = *found;
  }
  return kept;
}

json each_only(const json& list, std::initializer_list<const char*> names) {
  json kept = json::array();
  if (!list.is_array()) return kept;
  for (const json& entry : list) kept.push_back(only(entry, names));
  return kept;
}

json field(const json& object, const char* name) {
  return object.is_object() ? object.value(name, json()) : json();
}

}  // namespace

json maintained(const std::string& kind, const json& object) {
  if (kind == "Service") {
    const json spec = field(object, "spec");
    json content = only(spec, {"clusterIP", "publishNotReadyAddresses", "selector"});
    content["ports"] = each_only(field(spec, "ports"), {"name", "port"});
    return {{"spec", std::move(content)}};
  }
  if (kind == "Role") return {{"rules", field(object, "rules")}};
  if (kind == "RoleBinding")
    return {{"subjects", each_only(field(object, "subjects"), {"kind", "name", "namespace"})}};
  if (kind == "NetworkPolicy") return {{"spec", field(object, "spec")}};
  return nullptr;
}

std::string changed_field(const std::string& kind, const json& found, const json& wanted) {
  const json changes = json::diff(maintained(kind, found), maintained(kind, wanted));
  if (changes.empty()) return {};
  std::string path;
  const json::json_pointer pointer(changes[0]["path"].get<std::string>());
  for (auto at = pointer; !at.empty(); at.pop_back()) {
    const std::string& part = at.back();
    const bool in_list = part == "-" || part.find_first_not_of("0123456789") == std::string::npos;
    path = in_list ? "" : part + (path.empty() ? "" : "." + path);  // ends at the list
  }
  return path;
}

size_t content_of(const std::string& kind, const json& object) {
  const json content = maintained(kind, object);
  if (content.is_null()) return 0;
  const size_t hash =
      std::hash<std::string>()(content.dump(-1, ' ', false, json::error_handler_t::replace));
  return hash == 0 ? 1 : hash;
}

}  // namespace dsj::op
