// Counts names, in the order of their first occurrence. Internal to engine/data.
// Tested by: tests/engine/data/dataset_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/data/files/row_cache.h"

namespace dsj::data {

class Counts {
 public:
  explicit Counts(std::vector<UnreadField>& to) : to_(to) {}
  void add(const std::string& name, int64_t rows = 1) {
    const auto [found, is_new] = places_.try_emplace(name, to_.size());
    if (is_new) to_.push_back({name});
    to_[found->second].rows += rows;
  }

 private:
  std::vector<UnreadField>& to_;
  std::map<std::string, size_t> places_;
};

}  // namespace dsj::data
