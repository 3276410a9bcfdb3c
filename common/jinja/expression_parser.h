// Parses expressions by Jinja2's grammar; parser.cc adds the statements. Internal to parser.cc.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string_view>

#include "common/jinja/lexer.h"
#include "common/jinja/syntax.h"

namespace dsj::jinja {

class ExpressionParser {
 protected:
  using TokenKind = Token::Kind;
  using E = Expr::Kind;
  using Words = std::initializer_list<std::string_view>;

  static constexpr int kNestingMax = 300;  ///< nested brackets and blocks
  static constexpr int kChainMax = 1000;   ///< parts of a + b + c ..., a.b.c ...

  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  static std::string shown(const Token& token) {
    switch (token.kind) {
      case TokenKind::Data:
        return "text";
      case TokenKind::BlockBegin:
        return "{%";
      case TokenKind::BlockEnd:
        return "%}";
      case TokenKind::VariableBegin:
        return "{{";
      case TokenKind::VariableEnd:
        return "}}";
      case TokenKind::String:
        return "a text";
      case TokenKind::End:
        return "the end of the template";
      default:
        return "'" + token.text + "'";
    }
  }

  // ---- tokens

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next() {
    const Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  [[noreturn]] void fail(std::string message) const {
    throw SyntaxError{std::move(message), now().line};
  }
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_operator(std::string_view text) const {
    return is(TokenKind::Operator) && now().text == text;
  }
  static bool is_word(const Token& token, std::string_view text) {
    return token.kind == TokenKind::Name && token.text == text;
  }
  bool is_word(std::string_view text) const { return is_word(now(), text); }
  bool any_word(Words words) const {
    return std::ranges::any_of(words, [this](std::string_view one) { return is_word(one); });
  }
  bool skip_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    next();
    return true;
  }
  bool skip_word(std::string_view text) {
    if (!is_word(text)) return false;
    next();
    return true;
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text))
      fail("found " + shown(now()) + ", expected '" + std::string(text) + "'");
  }
  std::string expect_name(const char* what) {
    if (!is(TokenKind::Name)) fail("found " + shown(now()) + ", expected " + what);
    return next().text;
  }
  void expect(TokenKind kind, const char* what) {
    if (!is(kind)) fail("found " + shown(now()) + ", expected " + what);
    next();
  }

  // ---- nodes

  Expr& make(E kind) { return make(kind, now().line); }
  Expr& make(E kind, int line) {
    out_.exprs.push_back({.kind = kind, .line = line});
    return out_.exprs.back();
  }
  int id_of(const std::string& name) {
    const auto [at, added] = ids_.try_emplace(name, static_cast<int>(out_.names.size()));
    if (added) out_.names.push_back(name);
    return at->second;
  }
  Expr& name_expr(const std::string& name) {
    Expr& made = make(E::Name);
    made.name = name;
    made.id = id_of(name);
    return made;
  }
  /// Counts the nesting depth while it exists.
  struct Nesting {
    explicit Nesting(ExpressionParser& parser) : parser(parser) {
      if (++parser.nesting_ > kNestingMax)
        parser.fail("nests deeper than " + std::to_string(kNestingMax));
    }
    ~Nesting() { --parser.nesting_; }
    ExpressionParser& parser;
  };
  void check_chain(int& length) const {
    if (++length > kChainMax)
      fail("an expression has more than " + std::to_string(kChainMax) + " parts");
  }

  // ---- expressions

  const Expr* expression() {
    const Nesting nesting(*this);
    const Expr* left = either();
    int chain = 0;
    while (is_word("if")) {
      check_chain(chain);
      Expr& made = make(E::Condition);
      next();
      const Expr* condition = either();
      made.items = {left, condition, skip_word("else") ? expression() : nullptr};
      left = &made;
    }
    return left;
  }

  /// One expression, or several separated by commas: a tuple. `end`: a word that ends it.
  const Expr* tuple(bool with_condition = true, std::string_view end = {},
                    bool in_brackets = false) {
    const int line = now().line;
    std::vector<const Expr*> items;
    bool is_tuple = false;
    const auto ends = [&] {
      return is(TokenKind::VariableEnd) || is(TokenKind::BlockEnd) || is_operator(")") ||
             (!end.empty() && is_word(end));
    };
    while (true) {
      if (!items.empty()) expect_operator(",");
      if (ends()) break;
      items.push_back(with_condition ? expression() : either());
      if (!is_operator(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (!items.empty()) return items.front();
      if (!in_brackets) fail("found " + shown(now()) + ", expected an expression");
    }
    Expr& made = make(E::Tuple, line);
    made.items = std::move(items);
    return &made;
  }

  template <typename Next>
  const Expr* chain_of(E kind, std::string_view word, Next part) {
    const Expr* left = part();
    int chain = 0;
    while (is_word(word)) {
      check_chain(chain);
      Expr& made = make(kind);
      next();
      made.items = {left, part()};
      left = &made;
    }
    return left;
  }
  const Expr* either() {
    return chain_of(E::Or, "or",
                    [this] { return chain_of(E::And, "and", [this] { return negation(); }); });
  }

  const Expr* negation() {
    if (!is_word("not")) return comparison();
    const Nesting nesting(*this);
    Expr& made = make(E::Not);
    next();
    made.items = {negation()};
    return &made;
  }

  const Expr* comparison() {
    const int line = now().line;
    std::vector<const Expr*> items = {sum()};
    std::vector<std::string> operators;
    while (true) {
      std::string found;
      for (const char* one : {"==", "!=", "<", "<=", ">", ">="}) {
        if (is_operator(one)) found = one;
      }
      if (is_word("in")) found = "in";
      if (is_word("not") && is_word(ahead(), "in")) {
        next();
        found = "not in";
      }
      if (found.empty()) break;
      next();
      operators.push_back(std::move(found));
      items.push_back(sum());
    }
    if (operators.empty()) return items.front();
    Expr& made = make(E::Comparison, line);
    made.items = std::move(items);
    made.operators = std::move(operators);
    return &made;
  }

  template <typename Next>
  const Expr* binary(Words operators, Next part) {
    const Expr* left = part();
    int chain = 0;
    while (is(TokenKind::Operator) && std::ranges::find(operators, now().text) != operators.end()) {
      check_chain(chain);
      Expr& made = make(E::Binary);
      made.name = next().text;
      made.items = {left, part()};
      left = &made;
    }
    return left;
  }
  const Expr* sum() {
    return binary({"+", "-"}, [this] { return concat(); });
  }
  const Expr* concat() {
    const int line = now().line;
    std::vector<const Expr*> items = {product()};
    while (skip_operator("~")) items.push_back(product());
    if (items.size() == 1) return items.front();
    Expr& made = make(E::Concat, line);
    made.items = std::move(items);
    return &made;
  }
  const Expr* product() {
    return binary({"*", "/", "//", "%"}, [this] { return power(); });
  }
  const Expr* power() {
    return binary({"**"}, [this] { return unary(true); });
  }

  const Expr* unary(bool with_filters) {
    const Nesting nesting(*this);
    const Expr* node = nullptr;
    if (is_operator("-") || is_operator("+")) {
      Expr& made = make(is_operator("-") ? E::Negative : E::Positive);
      next();
      made.items = {unary(false)};
      node = &made;
    } else {
      node = primary();
    }
    node = postfix(node);
    return with_filters ? filtered(node) : node;
  }

  const Expr* primary() {
    const Nesting nesting(*this);
    const int line = now().line;
    if (is(TokenKind::Name)) return name_or_constant();
    if (is(TokenKind::String)) {
      std::string text;
      while (is(TokenKind::String)) text += next().text;
      return constant(Value(std::move(text)), line);
    }
    if (is(TokenKind::Integer)) return constant(whole(next().text), line);
    if (is(TokenKind::Float))
      return constant(Value(std::strtod(next().text.c_str(), nullptr)), line);
    if (skip_operator("(")) {
      const Expr* inner = tuple(true, {}, true);
      expect_operator(")");
      return inner;
    }
    if (skip_operator("[")) {
      std::vector<const Expr*> items;
      while (!is_operator("]")) {
        if (!items.empty()) expect_operator(",");
        if (is_operator("]")) break;
        items.push_back(expression());
      }
      next();
      Expr& made = make(E::List, line);
      made.items = std::move(items);
      return &made;
    }
    if (skip_operator("{")) {
      std::vector<const Expr*> items;
      while (!is_operator("}")) {
        if (!items.empty()) expect_operator(",");
        if (is_operator("}")) break;
        items.push_back(expression());
        expect_operator(":");
        items.push_back(expression());
      }
      next();
      Expr& made = make(E::Dict, line);
      made.items = std::move(items);
      return &made;
    }
    fail("found " + shown(now()) + ", expected an expression");
  }

  const Expr* constant(Value value, int line) {
    Expr& made = make(E::Constant, line);
    made.value = std::move(value);
    return &made;
  }

  const Expr* name_or_constant() {
    const int line = now().line;
    const std::string name = now().text;
    if (name == "true" || name == "True" || name == "false" || name == "False") {
      next();
      return constant(Value(name == "true" || name == "True"), line);
    }
    if (name == "none" || name == "None") {
      next();
      return constant(Value::none(), line);
    }
    if (!macros_.empty()) {
      macros_.back()->uses_varargs |= name == "varargs";
      macros_.back()->uses_kwargs |= name == "kwargs";
      macros_.back()->uses_caller |= name == "caller";
    }
    Expr& made = name_expr(name);
    next();
    return &made;
  }

  Value whole(const std::string& text) const {
    int base = 10;
    const char* begin = text.data();
    if (text.size() > 2 && text[0] == '0' && text[1] > '9') {
      base = (text[1] | 0x20) == 'x' ? 16 : (text[1] | 0x20) == 'o' ? 8 : 2;
      begin += 2;
    }
    int64_t value = 0;
    const auto end = std::from_chars(begin, text.data() + text.size(), value, base);
    if (end.ec != std::errc() || end.ptr != text.data() + text.size()) {
      fail("'" + text + "' is not a whole number of 64 bits");
    }
    return Value(value);
  }

  const Expr* postfix(const Expr* node) {
    for (int chain = 0;; check_chain(chain)) {
      if (is_operator(".") || is_operator("[")) {
        node = subscript(node);
      } else if (is_operator("(")) {
        node = call(node);
      } else {
        return node;
      }
    }
  }

  const Expr* subscript(const Expr* node) {
    const int line = now().line;
    if (skip_operator(".")) {
      if (is(TokenKind::Name)) {
        Expr& made = make(E::Attribute, line);
        made.name = next().text;
        made.items = {node};
        return &made;
      }
      if (!is(TokenKind::Integer)) fail("found " + shown(now()) + ", expected a name or a number");
      const Expr* place = constant(whole(next().text), line);
      Expr& made = make(E::Subscript, line);
      made.items = {node, place};
      return &made;
    }
    next();  // [
    const Expr* start = is_operator(":") ? nullptr : expression();
    if (!is_operator(":")) {
      if (is_operator(",")) fail("several subscripts are not built");
      expect_operator("]");
      Expr& made = make(E::Subscript, line);
      made.items = {node, start};
      return &made;
    }
    next();
    const auto part = [this] {
      return is_operator(":") || is_operator("]") ? nullptr : expression();
    };
    const Expr* stop = part();
    const Expr* step = skip_operator(":") ? part() : nullptr;
    expect_operator("]");
    Expr& made = make(E::Slice, line);
    made.items = {node, start, stop, step};
    return &made;
  }

  const Expr* call(const Expr* node) {
    Expr& made = make(E::Call);
    made.items = {node};
    arguments(made);
    return &made;
  }

  /// (a, *b, c=d, **e), for Call, Filter and Test.
  void arguments(Expr& owner) {
    expect_operator("(");
    bool first = true;
    while (!is_operator(")")) {
      if (!first) {
        expect_operator(",");
        if (is_operator(")")) break;
      }
      first = false;
      if (skip_operator("**")) {
        if (owner.rest_named) fail("two ** in one call");
        owner.rest_named = expression();
      } else if (skip_operator("*")) {
        if (owner.rest || owner.rest_named) fail("a * after * or ** in one call");
        owner.rest = expression();
      } else if (is(TokenKind::Name) && ahead().kind == TokenKind::Operator &&
                 ahead().text == "=") {
        if (owner.rest_named) fail("a named argument after ** in one call");
        std::string name = next().text;
        next();
        owner.named.emplace_back(std::move(name), expression());
      } else {
        if (owner.rest || owner.rest_named || !owner.named.empty())
          fail("a positional argument follows a keyword argument");
        owner.arguments.push_back(expression());
      }
    }
    next();
  }

  const Expr* filtered(const Expr* node) {
    for (int chain = 0;; check_chain(chain)) {
      if (is_operator("|")) {
        node = filters(node);
      } else if (is_word("is")) {
        node = test(node);
      } else if (is_operator("(")) {
        node = call(node);
      } else {
        return node;
      }
    }
  }

  std::string dotted_name(const char* what) {
    std::string name = expect_name(what);
    while (skip_operator(".")) name += "." + expect_name(what);
    return name;
  }

  /// | a | b(c): all filters that follow. `inline_first`: the first one has no |.
  const Expr* filters(const Expr* node, bool inline_first = false) {
    for (int chain = 0; is_operator("|") || inline_first; check_chain(chain)) {
      if (!inline_first) next();
      inline_first = false;
      Expr& made = make(E::Filter);
      made.name = dotted_name("a filter's name");
      made.items = {node};
      if (is_operator("(")) arguments(made);
      node = &made;
    }
    return node;
  }

  const Expr* test(const Expr* node) {
    Expr& made = make(E::Test);
    next();  // is
    const bool negated = skip_word("not");
    made.name = dotted_name("a test's name");
    made.items = {node};
    if (is_operator("(")) {
      arguments(made);
    } else if ((is(TokenKind::Name) && !any_word({"else", "or", "and"})) || is(TokenKind::String) ||
               is(TokenKind::Integer) || is(TokenKind::Float) || is_operator("[") ||
               is_operator("{")) {
      if (is_word("is")) fail("two tests with is in a row");
      made.arguments = {postfix(primary())};
    }
    if (!negated) return &made;
    Expr& inverse = make(E::Not, made.line);
    inverse.items = {&made};
    return &inverse;
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  std::vector<Stmt*> macros_;  ///< enclosing macros
  std::map<std::string, int> ids_;
  Syntax out_;
};

}  // namespace dsj::jinja
