// Jinja's filters: value | name(arguments). Internal to common/jinja. Not built: filesizeformat,
// forceescape, groupby, pprint, random, striptags, urlencode, urlize, wordwrap, xmlattr.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <string_view>

#include "common/jinja/filter_call.h"

namespace dsj::jinja {

/// Throws TemplateError: an unknown filter, or arguments that do not fit.
Value apply_filter(const FilterEnvironment& environment, std::string_view name, const Value& value,
                   Arguments arguments);

bool is_filter(std::string_view name);

}  // namespace dsj::jinja
