// A regular expression over names of modules and parameters, by PCRE2; its syntax is Python's but for
// rarities. Users write it, so matching is bounded, and a pattern that runs away is an error.
// Tested by: tests/job/layout/lora_test.cc
#pragma once

#include <memory>
#include <string>

#include "common/result.h"

namespace dsj::layout {

class NamePattern {
 public:
  enum class Part { Whole, Start };  ///< what must match: Python's re.fullmatch, or re.match
  /// BadInput: it does not compile. The message says where and why.
  static Result<NamePattern> compile(const std::string& pattern, Part part = Part::Whole);
  /// Error: the match took too long.
  Result<bool> matches(const std::string& name) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
};

}  // namespace dsj::layout
