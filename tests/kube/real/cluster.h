// The cluster that the tests of this folder run on: tests/cluster/cluster.py runs them with
// $DSJ_CLUSTER, its own path.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace dsj::kube::testing {

/// Runs `cluster.py WORDS`; a failure of the test when that fails.
inline void cluster(const std::string& words) {
  const char* program = std::getenv("DSJ_CLUSTER");
  ASSERT_TRUE(program) << "$DSJ_CLUSTER is not set: run by tests/cluster/cluster.py run";
  ASSERT_EQ(std::system((std::string(program) + " " + words).c_str()), 0) << words;
}

}  // namespace dsj::kube::testing
