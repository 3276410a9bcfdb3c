// Which backends with how many ranks a test of all of them takes.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace dsj::comm::testing_support {

struct BackendCase {
  std::string backend;
  int world;
  friend void PrintTo(const BackendCase& c, std::ostream* out) { *out << c.backend << c.world; }
};

/// Those of one level. Gloo, the oracle of the others, comes first.
inline constexpr const char* kBackends[] = {"gloo", "ring", "shm"};

/// Each backend with each of the world sizes; the one in two levels with those of `two_levels`.
inline std::vector<BackendCase> backend_cases(std::span<const char* const> backends,
                                              std::initializer_list<int> worlds,
                                              std::initializer_list<int> two_levels = {}) {
  std::vector<BackendCase> all;
  for (const char* backend : backends) {
    for (const int world : worlds) all.push_back({backend, world});
  }
  for (const int world : two_levels) all.push_back({"hierarchical", world});
  return all;
}

inline std::string name_of_case(const ::testing::TestParamInfo<BackendCase>& info) {
  return info.param.backend + std::to_string(info.param.world);
}

}  // namespace dsj::comm::testing_support
