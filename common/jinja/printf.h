// Python's two ways to fill a text: "%s" % values, and "{}".format(values). Internal to
// common/jinja. What is not built is refused with its place in the format.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <functional>
#include <string>

#include "common/jinja/arguments.h"
#include "common/jinja/value.h"

namespace dsj::jinja {

/// `values`: a tuple, a dict for %(name)s, or the one value.
Value percent_format(Budget& budget, const Value& format, const Value& values);

/// `attribute`: what object.name gives.
using AttributeOf = std::function<Value(const Value& object, const std::string& name)>;
Value brace_format(Budget& budget, const Value& format, const Arguments& arguments,
                   const AttributeOf& attribute);

}  // namespace dsj::jinja
