// A value at a dotted path of a JSON object, for tests that draw configurations.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::testing_support {

/// Sets `path` ("a.b.c"); what is no object on the way becomes one.
inline void set_at(nlohmann::json& object, const std::string& path, nlohmann::json value) {
  nlohmann::json* at = &object;
  std::string rest = path;
  for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest.erase(0, dot + 1)) {
    at = &(*at)[rest.substr(0, dot)];
    if (!at->is_object()) *at = nlohmann::json::object();
  }
  (*at)[rest] = std::move(value);
}

}  // namespace dsj::testing_support
