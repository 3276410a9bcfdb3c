// A regular expression over module names, by PCRE2; its syntax is Python's but for rarities. Users
// write it, so matching is bounded, and a pattern that runs away is an error.
#pragma once

#include <memory>
#include <string>

#include "common/result.h"

namespace dsj::layout {

class NamePattern {
 public:
  /// BadInput: it does not compile. The message says where and why.
  static Result<NamePattern> compile(const std::string& pattern);
  /// Whether all of `name` matches (Python's re.fullmatch). Error: the match took too long.
  Result<bool> matches(const std::string& name) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  std::unique_ptr<void, Free> code_;
};

}  // namespace dsj::layout
