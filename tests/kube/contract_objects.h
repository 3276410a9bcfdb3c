// What the contract cases make and look at.
#pragma once

#include <gtest/gtest.h>

#include "kube/client.h"
#include "tests/support/soon.h"

namespace dsj::kube::testing {

inline const Resource kMaps = resources::config_maps();

inline Json config_map(const std::string& name, Json data = {{"key", "value"}}, Json labels = {}) {
  Json object = {{"apiVersion", "v1"},
                 {"kind", "ConfigMap"},
                 {"metadata", {{"name", name}}},
                 {"data", std::move(data)}};
  if (!labels.empty()) object["metadata"]["labels"] = std::move(labels);
  return object;
}

inline std::string version_of(const Json& object) {
  return object["metadata"]["resourceVersion"];
}

/// The result; a failure of the test, and an empty object, when there is none.
inline Json must(ApiResult<Json> result) {
  EXPECT_TRUE(result) << (result ? "" : result.error().to_string());
  return result ? *result : Json::object();
}

}  // namespace dsj::kube::testing
