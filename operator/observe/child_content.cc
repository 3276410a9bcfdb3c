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

size_t content_of(const std::string& kind, const json& object) {
  json content;
  if (kind == "Service") {
    const json spec = field(object, "spec");
    content = only(spec, {"clusterIP", "publishNotReadyAddresses", "selector"});
    content["ports"] = each_only(field(spec, "ports"), {"name", "port"});
  } else if (kind == "Role") {
    content = field(object, "rules");
  } else if (kind == "RoleBinding") {
    content = each_only(field(object, "subjects"), {"kind", "name", "namespace"});
  } else if (kind == "NetworkPolicy") {
    content = field(object, "spec");
  } else {
    return 0;
  }
  const size_t hash =
      std::hash<std::string>()(content.dump(-1, ' ', false, json::error_handler_t::replace));
  return hash == 0 ? 1 : hash;
}

}  // namespace dsj::op
