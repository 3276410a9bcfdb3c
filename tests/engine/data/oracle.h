// What the scripts of tests/oracle wrote for the data tests.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::data {

/// The variant of this name, which a test expects to be there.
inline const nlohmann::json& variant_of(const nlohmann::json& oracle, const std::string& name) {
  for (const nlohmann::json& variant : oracle["variants"])
    if (variant["name"] == name) return variant;
  ADD_FAILURE() << "no variant " << name;
  return oracle;
}

}  // namespace dsj::data
