// Jinja's filters of lists and mappings: sort, map, select, join, batch ... Internal to filters.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include "common/jinja/filter_call.h"

namespace dsj::jinja {

const FilterTable& list_filters();

}  // namespace dsj::jinja
