// A template's syntax tree. The Syntax owns its nodes, which do not change after parsing. Internal
// to common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "common/jinja/value.h"

namespace dsj::jinja {

/// An expression. The comments name the fields that each kind uses:
struct Expr {
  enum class Kind {
    Constant,   ///< value
    Name,       ///< name, id
    List,       ///< items
    Tuple,      ///< items
    Dict,       ///< items: key, value, key, value ...
    Attribute,  ///< items[0].name
    Subscript,  ///< items[0][items[1]]
    Slice,      ///< items: object, start, stop, step; any of the last three may be nullptr
    Call,       ///< items[0](arguments)
    Filter,     ///< items[0] | name(arguments); items[0] is nullptr in a filter block
    Test,       ///< items[0] is name(arguments)
    Not,        ///< items[0]
    Negative,
    Positive,
    And,  ///< items[0], items[1]
    Or,
    Binary,      ///< items[0] name items[1]: + - * / // % **
    Concat,      ///< items, with ~
    Comparison,  ///< items[0] operators[0] items[1] operators[1] items[2] ...
    Condition,   ///< items[0] if items[1] else items[2], which may be nullptr
  };
  Kind kind = Kind::Constant;
  int line = 0;
  std::string name;
  int id = -1;
  Value value;
  std::vector<const Expr*> items;
  std::vector<std::string> operators;
  // The arguments of Call, Filter and Test.
  std::vector<const Expr*> arguments;
  std::vector<std::pair<std::string, const Expr*>> named;
  const Expr* rest = nullptr;        ///< *rest
  const Expr* rest_named = nullptr;  ///< **rest_named
};

struct Stmt;
using Body = std::vector<const Stmt*>;

struct Parameter {
  int id = -1;
  std::string name;
  const Expr* preset = nullptr;
};

/// A statement.
struct Stmt {
  enum class Kind {
    Text,         ///< text
    Print,        ///< expr
    If,           ///< branches; the last condition is nullptr for else
    For,          ///< target in expr if condition: body, else_body
    Set,          ///< target = expr
    SetBlock,     ///< target = body, passed through the filters of expr, which may be nullptr
    Macro,        ///< id, text, parameters, body
    CallBlock,    ///< expr: the call; parameters, body: its caller()
    FilterBlock,  ///< body, passed through the filters of expr
    With,         ///< targets = values, body
    Generation,   ///< body
    Block,        ///< body, with its own scope
    Break,
    Continue,
  };
  struct Branch {
    const Expr* condition = nullptr;
    Body body;
  };
  Kind kind = Kind::Text;
  int line = 0;
  int id = -1;
  std::string text;
  const Expr* expr = nullptr;
  const Expr* target = nullptr;  ///< a Name, a Tuple of them, or namespace.attribute
  const Expr* condition = nullptr;
  bool recursive = false;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  std::vector<std::pair<const Expr*, const Expr*>> assignments;
  Body body, else_body;
};

struct Syntax {
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::vector<std::string> names;  ///< by id
  Body body;
  bool has_generation = false;
};

}  // namespace dsj::jinja
