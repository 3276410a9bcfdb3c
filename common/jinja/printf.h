// Python's two ways to format text: "%s" % values, and "{}".format(values). Internal to
// common/jinja. Errors for what is not built contain the position in the format.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <functional>
#include <string>

#include "common/jinja/arguments.h"
#include "common/jinja/value.h"

namespace dsj::jinja {

/// `values`: a tuple, a dict for %(name)s, or a single value.
Value percent_format(Budget& budget, const Value& format, const Value& values);

/// Returns object.name.
using AttributeOf = std::function<Value(const Value& object, const std::string& name)>;
Value brace_format(Budget& budget, const Value& format, const Arguments& arguments,
                   const AttributeOf& attribute);

}  // namespace dsj::jinja
