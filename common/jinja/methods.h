// The methods of Python's str, dict, list and tuple that a template may call. Methods that change
// their object are forbidden, as in Jinja2's sandbox. Internal to common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <string_view>

#include "common/jinja/arguments.h"
#include "common/jinja/printf.h"
#include "common/jinja/value.h"

namespace dsj::jinja {

enum class Method {
  None,       ///< Python has no such attribute there
  Built,      ///< call_method() supports it
  NotBuilt,   ///< Python has it, call_method() does not
  Forbidden,  ///< it would change its object
};
Method method_of(const Value& object, std::string_view name);

/// object.name(arguments) for a Built method. Throws TemplateError. `attribute`: for str.format.
Value call_method(Budget& budget, const Value& object, std::string_view name, Arguments arguments,
                  const AttributeOf& attribute);

}  // namespace dsj::jinja
