// Parses tokens into a syntax tree, by Jinja2's grammar. Not built: include, import, from, extends,
// block, autoescape. Internal to common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include "common/jinja/lexer.h"
#include "common/jinja/syntax.h"

namespace dsj::jinja {

/// Throws SyntaxError, also if the tree is too deep for the evaluator.
Syntax parse(std::vector<Token> tokens);

}  // namespace dsj::jinja
