// A call of a filter in a template. Internal to common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "common/jinja/arguments.h"
#include "common/jinja/value.h"

namespace dsj::jinja {

/// The parts of the evaluator that filters use.
struct FilterEnvironment {
  Budget& budget;
  /// object[key], or object.key if there is no such item.
  std::function<Value(const Value& object, const Value& key)> item;
};

struct FilterCall {
  const FilterEnvironment& environment;
  std::string_view name;
  const Value& value;
  Arguments& arguments;
  /// apply_filter(), for filters that call others, such as map.
  Value (*apply)(const FilterEnvironment&, std::string_view, const Value&, Arguments);

  Bound bind(std::initializer_list<std::string_view> names) const {
    return Bound("the filter " + std::string(name), std::move(arguments), names);
  }
  /// The result is Markup if the input is.
  Value text(std::string made) const {
    environment.budget.bytes(made.size());
    return Value(std::move(made), value.is_markup());
  }
  Values items() const {
    Values made = items_of(value);
    environment.budget.step(std::ssize(made));
    return made;
  }
};

using FilterBody = std::function<Value(const FilterCall&)>;
using FilterTable = std::map<std::string_view, FilterBody>;

}  // namespace dsj::jinja
