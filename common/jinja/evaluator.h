// Walks a template's syntax tree. Internal to common/jinja; callers use template.h.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include "common/jinja/rendering.h"
#include "common/jinja/syntax.h"

namespace dsj::jinja {

/// Throws TemplateError; `line` is then the template's current line.
Rendered evaluate(const Syntax& syntax, const Context& context, const RenderOptions& options,
                  int& line);

}  // namespace dsj::jinja
