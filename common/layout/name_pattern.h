// A regular expression over module names, by PCRE2: Python's syntax but for rarities. The pattern
// comes from a user: matching is bounded, and a pattern that runs away is an error.
#pragma once

#include <memory>
#include <string>

#include "common/result.h"

namespace dsj::layout {

class NamePattern {
 public:
  /// BadInput: it does not compile; the message says where and why.
  static Result<NamePattern> compile(const std::string& pattern);
  /// Whether the whole of `name` matches (Python's re.fullmatch).
  Result<bool> matches(const std::string& name) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
};

}  // namespace dsj::layout
