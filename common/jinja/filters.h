// Jinja's filters: value | name(arguments). Internal to common/jinja. Refused by name: filesizeformat,
// forceescape, groupby, pprint, random, striptags, urlencode, urlize, wordwrap, xmlattr.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <functional>
#include <string_view>

#include "common/jinja/arguments.h"
#include "common/jinja/value.h"

namespace dsj::jinja {

/// What filters need of the evaluator.
struct FilterEnvironment {
  Budget& budget;
  /// object[key], or object.key where there is no such item.
  std::function<Value(const Value& object, const Value& key)> item;
};

/// Throws TemplateError: there is no such filter, or it does not fit.
Value apply_filter(const FilterEnvironment& environment, std::string_view name, const Value& value,
                   Arguments arguments);

bool is_filter(std::string_view name);

}  // namespace dsj::jinja
