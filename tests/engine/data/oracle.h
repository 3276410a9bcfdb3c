// Access to the fixtures that the scripts of tests/oracle write for the data tests.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::data {

/// The variant with this name, which must exist.
inline const nlohmann::json& variant_of(const nlohmann::json& oracle, const std::string& name) {
  for (const nlohmann::json& variant : oracle["variants"])
    if (variant["name"] == name) return variant;
  ADD_FAILURE() << "no variant " << name;
  return oracle;
}

}  // namespace dsj::data
