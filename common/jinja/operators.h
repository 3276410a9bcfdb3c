// Python's operators, subscripts and slices on values, and JSON in json.dumps's format. Internal to
// common/jinja. All throw TemplateError where Python raises an error.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/jinja/arguments.h"
#include "common/jinja/value.h"

namespace dsj::jinja {

/// `op`: + - * / // % **
Value binary(Budget& budget, std::string_view op, const Value& a, const Value& b);
Value negative(const Value& value);
/// `op`: == != < <= > >= in, not in
bool relation(std::string_view op, const Value& a, const Value& b);

/// object[place]; undefined if there is no such element.
Value subscript(const Value& object, const Value& place);
Value slice(const Value& object, std::optional<int64_t> start, std::optional<int64_t> stop,
            std::optional<int64_t> step);

/// "'dict object' has no attribute 'x'"
Value no_element(const Value& object, const Value& place);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;
  std::optional<std::string> item_separator, key_separator;
};
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace dsj::jinja
