#include "common/jinja/parser.h"

#include "common/jinja/expression_parser.h"

namespace dsj::jinja {
namespace {

using S = Stmt::Kind;

class Parser final : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Syntax run() {
    out_.body = body({});
    return std::move(out_);
  }

 private:
  using ExpressionParser::make;
  Stmt& make(S kind) {
    out_.stmts.push_back({.kind = kind, .line = now().line});
    return out_.stmts.back();
  }

  /// Reads up to a tag that begins with one of `ends`; that word is the next token.
  Body body(Words ends) {
    const Nesting nesting(*this);
    const int begin_line = now().line;
    Body made;
    while (!is(TokenKind::End)) {
      if (is(TokenKind::Data)) {
        Stmt& text = make(S::Text);
        text.text = next().text;
        made.push_back(&text);
      } else if (is(TokenKind::VariableBegin)) {
        next();
        Stmt& print = make(S::Print);
        print.expr = tuple();
        expect(TokenKind::VariableEnd, "}}");
        made.push_back(&print);
      } else {
        next();  // {%: the lexer emits nothing else here
        if (any_word(ends)) return made;
        made.push_back(statement());
        expect(TokenKind::BlockEnd, "%}");
      }
    }
    if (ends.size() > 0) {
      throw SyntaxError{"the tag has no {% " + std::string(*std::prev(ends.end())) + " %}",
                        begin_line};
    }
    return made;
  }
  /// Reads the tag's end and the body, up to the first word of the closing tag.
  Body block(Words ends) {
    skip_operator(":");
    expect(TokenKind::BlockEnd, "%}");
    return body(ends);
  }
  Body whole_block(std::string_view end) {
    Body made = block({end});
    next();
    return made;
  }

  const Stmt* statement() {
    const std::string word = expect_name("a statement's name");
    if (word == "if") return if_statement();
    if (word == "for") return for_statement();
    if (word == "set") return set_statement();
    if (word == "macro") return macro();
    if (word == "call") return call_block();
    if (word == "filter") return filter_block();
    if (word == "with") return with();
    if (word == "generation") {
      out_.has_generation = true;
      Stmt& made = make(S::Generation);
      made.body = whole_block("endgeneration");
      return &made;
    }
    if (word == "print") {
      Stmt& made = make(S::Print);
      Expr& all = make(E::Concat);
      do all.items.push_back(expression());
      while (skip_operator(","));
      made.expr = &all;
      return &made;
    }
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail("{% " + word + " %} outside a loop");
      return &make(word == "break" ? S::Break : S::Continue);
    }
    for (const char* one : {"include", "import", "from", "extends", "block", "autoescape"}) {
      if (word == one) fail("{% " + word + " %} is not built: a chat template is one text");
    }
    fail("unknown tag {% " + word + " %}");
  }

  const Stmt* if_statement() {
    Stmt& made = make(S::If);
    while (true) {
      Stmt::Branch branch;
      branch.condition = tuple(false);
      branch.body = block({"elif", "else", "endif"});
      made.branches.push_back(std::move(branch));
      const std::string word = next().text;
      if (word == "elif") continue;
      if (word == "else") made.branches.push_back({nullptr, whole_block("endif")});
      return &made;
    }
  }

  const Stmt* for_statement() {
    Stmt& made = make(S::For);
    made.target = target("in");
    if (!skip_word("in")) fail("found " + shown(now()) + ", expected in");
    made.expr = tuple(false, "recursive");
    if (skip_word("if")) made.condition = expression();
    made.recursive = skip_word("recursive");
    ++loops_;
    made.body = block({"else", "endfor"});
    --loops_;
    if (next().text == "else") made.else_body = whole_block("endfor");
    return &made;
  }

  const Stmt* set_statement() {
    Stmt& made = make(S::Set);
    made.target = target({}, true);
    if (skip_operator("=")) {
      made.expr = tuple();
    } else {
      made.kind = S::SetBlock;
      if (is_operator("|")) made.expr = filters(nullptr);
      made.body = whole_block("endset");
    }
    return &made;
  }

  const Stmt* macro() {
    Stmt& made = make(S::Macro);
    made.text = expect_name("the macro's name");
    made.id = id_of(made.text);
    made.parameters = parameters();
    made.body = callable_body(made, "endmacro");
    return &made;
  }

  const Stmt* call_block() {
    Stmt& made = make(S::CallBlock);
    made.text = "caller";
    if (is_operator("(")) made.parameters = parameters();
    made.expr = expression();
    if (made.expr->kind != E::Call) fail("{% call %} needs a call");
    made.body = callable_body(made, "endcall");
    return &made;
  }

  Body callable_body(Stmt& owner, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(&owner);
    Body made = whole_block(end);
    macros_.pop_back();
    loops_ = loops;
    return made;
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> made;
    expect_operator("(");
    while (!is_operator(")")) {
      if (!made.empty()) expect_operator(",");
      Parameter one;
      one.name = expect_name("a parameter's name");
      one.id = id_of(one.name);
      if (skip_operator("=")) {
        one.preset = expression();
      } else if (!made.empty() && made.back().preset) {
        fail("the parameter '" + one.name + "' has no preset, but one before it has");
      }
      made.push_back(std::move(one));
    }
    next();
    return made;
  }

  const Stmt* filter_block() {
    Stmt& made = make(S::FilterBlock);
    made.expr = filters(nullptr, true);
    made.body = whole_block("endfilter");
    return &made;
  }

  const Stmt* with() {
    Stmt& made = make(S::With);
    while (!is(TokenKind::BlockEnd)) {
      if (!made.assignments.empty()) expect_operator(",");
      const Expr* to = target({});
      expect_operator("=");
      made.assignments.emplace_back(to, expression());
    }
    made.body = whole_block("endwith");
    return &made;
  }

  /// The target of an assignment.
  const Expr* target(std::string_view end, bool with_namespace = false) {
    if (with_namespace && is(TokenKind::Name) && ahead().kind == TokenKind::Operator &&
        ahead().text == ".") {
      Expr& made = make(E::Attribute);
      made.items = {&name_expr(next().text)};
      next();
      made.name = expect_name("an attribute's name");
      return &made;
    }
    std::vector<const Expr*> items;
    bool is_tuple = false;
    while (true) {
      items.push_back(one_target());
      if (!skip_operator(",")) break;
      is_tuple = true;
      if (is_operator("=") || is_operator(")") || (!end.empty() && is_word(end))) break;
    }
    if (!is_tuple) return items.front();
    Expr& made = make(E::Tuple);
    made.items = std::move(items);
    return &made;
  }
  const Expr* one_target() {
    const Nesting nesting(*this);
    if (skip_operator("(")) {
      const Expr* inner = target({});
      expect_operator(")");
      return inner;
    }
    const Token token = now();
    const std::string name = expect_name("a name to assign to");
    for (const char* one : {"true", "false", "none", "True", "False", "None"}) {
      if (name == one) throw SyntaxError{"'" + name + "' cannot be assigned to", token.line};
    }
    return &name_expr(name);
  }

  int loops_ = 0;  ///< enclosing loops within the macro
};

}  // namespace

Syntax parse(std::vector<Token> tokens) {
  return Parser(std::move(tokens)).run();
}

}  // namespace dsj::jinja
