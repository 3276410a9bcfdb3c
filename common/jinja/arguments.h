// The arguments of a call in a template, and the remaining budget of a rendering. Internal to
// common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/jinja/value.h"

namespace dsj::jinja {

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Arguments matched to parameter names, in the order of `names`.
class Bound {
 public:
  /// `what`: the callee, for messages. Throws TemplateError: too many, or an unknown name.
  Bound(std::string_view what, Arguments given, std::initializer_list<std::string_view> names);
  bool has(size_t i) const { return values_[i].has_value(); }
  const Value& need(size_t i) const;
  Value get(size_t i, Value preset) const { return has(i) ? *values_[i] : std::move(preset); }
  bool flag(size_t i, bool preset) const { return has(i) ? truth(*values_[i]) : preset; }
  int64_t whole(size_t i, int64_t preset) const;
  /// As text, for any type.
  std::string text(size_t i, std::string_view preset) const;

 private:
  std::string what_;
  std::vector<std::string> names_;
  std::vector<std::optional<Value>> values_;
};

/// The remaining resources of one rendering. Throws TemplateError when they are used up.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes_max) : steps_(steps), bytes_max_(bytes_max) {}
  void step(int64_t count = 1);
  /// Call before creating a text of `count` bytes.
  void bytes(size_t count);

 private:
  int64_t steps_;
  const int64_t bytes_max_;
};

}  // namespace dsj::jinja
