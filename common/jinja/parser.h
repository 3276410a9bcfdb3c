// Tokens to a syntax tree, by Jinja2's grammar. Not built, and refused by name: include, import,
// from, extends, block, autoescape. Internal to common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include "common/jinja/lexer.h"
#include "common/jinja/syntax.h"

namespace dsj::jinja {

/// Throws SyntaxError, also for a tree that is deeper than the evaluator could walk.
Syntax parse(std::vector<Token> tokens);

}  // namespace dsj::jinja
