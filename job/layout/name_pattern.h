// A regular expression over names of modules and parameters, by PCRE2. The syntax is Python's except
// for rare cases. Users write it, so matching is bounded, and exceeding the bound is an error.
// Tested by: tests/job/layout/lora_test.cc
#pragma once

#include <memory>
#include <string>

#include "common/result.h"

namespace dsj::layout {

class NamePattern {
 public:
  enum class Part { Whole, Start };  ///< as Python's re.fullmatch, or re.match
  /// Errors: BadInput if it does not compile, with the position and the reason.
  static Result<NamePattern> compile(const std::string& pattern, Part part = Part::Whole);
  /// Errors: if the match takes too long.
  Result<bool> matches(const std::string& name) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
};

}  // namespace dsj::layout
