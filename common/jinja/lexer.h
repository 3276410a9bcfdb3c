// Splits a template's text into tokens, as Jinja2 with transformers' settings (trim_blocks,
// lstrip_blocks, the final newline is dropped). Internal to common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsj::jinja {

struct Token {
  enum class Kind {
    Data,  ///< text that is printed unchanged
    BlockBegin,
    BlockEnd,
    VariableBegin,
    VariableEnd,
    Name,
    Integer,
    Float,
    String,  ///< without quotes, escapes decoded
    Operator,
    End,
  };
  Kind kind = Kind::End;
  std::string text;
  int line = 0;
};

/// Thrown by the lexer and the parser.
struct SyntaxError {
  std::string message;
  int line = 0;
};

/// `source`: UTF-8. The last token is End. Throws SyntaxError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace dsj::jinja
