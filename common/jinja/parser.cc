#include "common/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string_view>

namespace dsj::jinja {
namespace {

using TokenKind = Token::Kind;
using E = Expr::Kind;
using S = Stmt::Kind;
using Words = std::initializer_list<std::string_view>;

constexpr int kNestingMax = 300;  ///< of brackets and blocks
constexpr int kChainMax = 1000;   ///< a + b + c ..., a.b.c ...

std::string shown(const Token& token) {
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

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Syntax run() {
    out_.body = body({});
    return std::move(out_);
  }

 private:
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
  Stmt& make(S kind) {
    out_.stmts.push_back({.kind = kind, .line = now().line});
    return out_.stmts.back();
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
  /// Counts how deep the parser is while it lives.
  struct Nesting {
    explicit Nesting(Parser& parser) : parser(parser) {
      if (++parser.nesting_ > kNestingMax)
        parser.fail("nests deeper than " + std::to_string(kNestingMax));
    }
    ~Nesting() { --parser.nesting_; }
    Parser& parser;
  };
  void check_chain(int& length) const {
    if (++length > kChainMax)
      fail("an expression has more than " + std::to_string(kChainMax) + " parts");
  }

  // ---- statements

  /// Up to a tag that begins with one of `ends`, whose first word is then next.
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
        next();  // {%: the lexer gives nothing else here
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
  /// The tag's end, the body, and the first word of the tag that ends it.
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

  /// What is assigned to.
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

  /// One expression, or several with commas: a tuple. `end`: a word that ends it.
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

  /// | a | b(c): all that follow. `inline_first`: the first has no |.
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
  int loops_ = 0;  ///< around this place, within its macro
  std::vector<Stmt*> macros_;
  std::map<std::string, int> ids_;
  Syntax out_;
};

}  // namespace

Syntax parse(std::vector<Token> tokens) {
  return Parser(std::move(tokens)).run();
}

}  // namespace dsj::jinja
