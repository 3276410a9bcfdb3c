#include "job/spec/overrides.h"

#include "job/spec/yaml.h"

namespace dsj::jobspec {

Result<Override> parse_override(const std::string& text) {
  const std::string where = "--set " + text;
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    return bad_input("there is no =", where, "write --set spec.training.maxSteps=20");
  Override change{.text = where};
  for (size_t begin = 0; begin <= equals;) {
    const size_t dot = std::min(text.find('.', begin), equals);
    if (dot == begin) return bad_input("an empty name in the path", where);
    change.path.push_back(text.substr(begin, dot - begin));
    begin = dot + 1;
  }
  if (change.path.size() < 2 || (change.path[0] != "spec" && change.path[0] != "metadata"))
    return bad_input("the path does not begin with \"spec.\"", where,
                     "write --set spec.training.maxSteps=20");
  if (change.path.size() > dsconfig::kMaxDepth) return bad_input("the path is too deep", where);
  // Wrapped, so that an empty value is null and a single word is a string.
  DSJ_TRY(const dsconfig::Document wrapped, parse_yaml("v: " + text.substr(equals + 1), where));
  if (!wrapped.value.is_object() || wrapped.value.size() != 1)
    return bad_input("the value is not one YAML value", where, "quote it");
  change.value = wrapped.value["v"];
  return change;
}

Status apply(const Override& change, size_t skip, nlohmann::json& root) {
  nlohmann::json* at = &root;
  for (size_t i = skip; i < change.path.size(); ++i) {
    if (at->is_null()) *at = nlohmann::json::object();
    if (!at->is_object())
      return bad_input("\"" + change.path[i] + "\" is below a value that is not an object",
                       change.text);
    at = &(*at)[change.path[i]];
  }
  *at = change.value;
  return {};
}

}  // namespace dsj::jobspec
