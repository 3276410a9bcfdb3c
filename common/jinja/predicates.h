// Jinja's tests: "x is name(arguments)". Internal to common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <string_view>

#include "common/jinja/arguments.h"
#include "common/jinja/value.h"

namespace dsj::jinja {

/// Throws TemplateError: an unknown test, or arguments that do not fit.
bool apply_test(std::string_view name, const Value& value, Arguments arguments);

/// Whether there is such a test.
bool is_test(std::string_view name);

}  // namespace dsj::jinja
