#include "common/jinja/evaluator.h"

#include <algorithm>

#include "common/check.h"
#include "common/jinja/filters.h"
#include "common/jinja/globals.h"
#include "common/jinja/methods.h"
#include "common/jinja/objects.h"
#include "common/jinja/operators.h"
#include "common/jinja/predicates.h"

namespace dsj::jinja {
namespace {

using E = Expr::Kind;
using S = Stmt::Kind;

constexpr int kEvalDepthMax = 600;  ///< nested calls in this file

enum class Flow { Next, Break, Continue };

class Evaluator {
 public:
  Evaluator(const Syntax& syntax, const Context& context, const RenderOptions& options, int& line)
      : syntax_(syntax),
        options_(options),
        line_(line),
        budget_(options.steps_max, options.bytes_max),
        filters_{budget_,
                 [this](const Value& object, const Value& key) { return item(object, key); }},
        attribute_([this](const Value& object, const std::string& name) {
          return attribute(object, name);
        }),
        scope_(std::make_shared<Scope>()) {
    globals_.assign(syntax.names.size(), std::nullopt);
    for (size_t i = 0; i < syntax.names.size(); ++i) {
      globals_[i] = global_function(syntax.names[i], {budget_, options.now, namespaces_});
      for (const auto& [name, value] : context) {
        if (name == syntax.names[i]) globals_[i] = value;
      }
    }
  }
  ~Evaluator() {
    for (const auto& one : namespaces_) one->attributes.clear();
    for (const auto& one : functions_) one->release();
  }

  Rendered run() {
    std::string text;
    out_ = &text;
    body(syntax_.body);
    return {std::move(text), std::move(generated_)};
  }

 private:
  /// Counts the call depth while it exists.
  struct Deeper {
    explicit Deeper(Evaluator& owner) : owner(owner) {
      owner.budget_.step();
      if (++owner.depth_ > kEvalDepthMax) throw TemplateError{"the template calls itself too deep"};
    }
    ~Deeper() { --owner.depth_; }
    Evaluator& owner;
  };
  /// Replaces a variable, such as the scope or the output, while it exists.
  template <typename T>
  struct Instead {
    Instead(T& place, T value) : place(place), kept(std::exchange(place, std::move(value))) {}
    ~Instead() { place = std::move(kept); }
    T& place;
    T kept;
  };

  // ---- names

  const Value* find(int id) const {
    for (Scope* scope = scope_.get(); scope; scope = scope->outer.get()) {
      if (const Value* found = scope->find_here(id)) return found;
    }
    const auto& found = globals_[static_cast<size_t>(id)];
    return found ? &*found : nullptr;
  }

  void assign(const Expr& target, Value value) {
    if (target.kind == E::Name) return scope_->set(target.id, std::move(value));
    if (target.kind == E::Attribute) {
      const Value* owner = find(target.items[0]->id);
      auto* space = owner ? owner->object_as<Namespace>() : nullptr;
      if (!space)
        throw TemplateError{"'" + target.items[0]->name +
                            "' is not a namespace: only one of those has attributes to set"};
      return space->set(target.name, std::move(value));
    }
    const Values items = items_of(value);
    if (items.size() != target.items.size()) {
      throw TemplateError{std::to_string(items.size()) + " values for " +
                          std::to_string(target.items.size()) + " names"};
    }
    for (size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i]);
  }

  // ---- attributes and calls

  Value attribute(const Value& object, const std::string& name) {
    if (object.is_undefined()) throw TemplateError{object.why()};
    switch (method_of(object, name)) {
      case Method::Built:
        return bound_method(object, name);
      case Method::NotBuilt:
        throw TemplateError{"the method " + name + " of " + type_name(object) + " is not built"};
      case Method::Forbidden:
        return Value::undefined("access to attribute '" + name + "' of '" + type_name(object) +
                                "' object is unsafe.");
      case Method::None:
        break;
    }
    if (const Dict* dict = object.dict()) {
      if (const Value* found = dict->named(name)) return *found;
    }
    if (const Object* other = object.object()) {
      if (auto found = other->attribute(name)) return std::move(*found);
    }
    return no_element(object, Value(name));
  }

  Value bound_method(const Value& object, const std::string& name) {
    return Value(std::shared_ptr<Object>(std::make_shared<Function>(
        name,
        [this, object, name](Arguments arguments) {
          return call_method(budget_, object, name, std::move(arguments), attribute_);
        },
        object.depth() + 1)));
  }

  /// object[key]: an item, or an attribute of that name.
  Value item(const Value& object, const Value& key) {
    if (!object.object()) {
      Value found = subscript(object, key);
      if (!found.is_undefined() || !key.is_str()) return found;
      if (method_of(object, key.bytes()) == Method::None) return found;
    }
    if (!key.is_str()) return no_element(object, key);
    return attribute(object, key.bytes());
  }

  Arguments arguments_of(const Expr& expr) {
    Arguments made;
    for (const Expr* one : expr.arguments) made.positional.push_back(eval(*one));
    if (expr.rest) {
      for (Value& one : items_of(eval(*expr.rest))) made.positional.push_back(std::move(one));
    }
    for (const auto& [name, one] : expr.named) made.named.emplace_back(name, eval(*one));
    if (expr.rest_named) {
      const Value all = eval(*expr.rest_named);
      if (!all.dict())
        throw TemplateError{"** needs a dict, it got a value of type " + type_name(all)};
      for (const auto& [name, one] : all.dict()->entries())
        made.named.emplace_back(to_str(name), one);
    }
    return made;
  }

  Value call(const Expr& expr) {
    const Expr& callee = *expr.items[0];
    if (callee.kind == E::Attribute) {
      const Value object = eval(*callee.items[0]);
      if (method_of(object, callee.name) == Method::Built) {
        Arguments arguments = arguments_of(expr);
        at(expr);
        return call_method(budget_, object, callee.name, std::move(arguments), attribute_);
      }
      if (auto* loop = object.object_as<Loop>()) return loop->call(callee.name, arguments_of(expr));
      if (auto* cycler = object.object_as<Cycler>()) return cycler->call(callee.name);
      const Value function = attribute(object, callee.name);
      Arguments arguments = arguments_of(expr);
      at(expr);
      return call_value(function, std::move(arguments));
    }
    const Value function = eval(callee);
    Arguments arguments = arguments_of(expr);
    at(expr);
    return call_value(function, std::move(arguments));
  }

  Value call_value(const Value& function, Arguments arguments) {
    if (function.is_undefined()) throw TemplateError{function.why()};
    if (auto* made = function.object_as<Function>()) return made->call(std::move(arguments));
    if (auto* loop = function.object_as<Loop>(); loop && loop->recurse) {
      const Bound bound("loop", std::move(arguments), {"items"});
      return loop->recurse(bound.need(0));
    }
    throw TemplateError{"a value of type " + type_name(function) + " cannot be called"};
  }

  // ---- expressions

  void at(const Expr& expr) { line_ = expr.line; }

  Value eval(const Expr& expr) {
    const Deeper deeper(*this);
    at(expr);
    switch (expr.kind) {
      case E::Constant:
        return expr.value;
      case E::Name: {
        const Value* found = find(expr.id);
        return found ? *found : Value::undefined("'" + expr.name + "' is undefined");
      }
      case E::List:
      case E::Tuple: {
        Values items;
        for (const Expr* one : expr.items) items.push_back(eval(*one));
        return make_sequence(std::move(items),
                             expr.kind == E::List ? Sequence::Kind::List : Sequence::Kind::Tuple);
      }
      case E::Dict: {
        Dict made;
        for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
          Value key = eval(*expr.items[i]);
          check_key(key);
          made.set(std::move(key), eval(*expr.items[i + 1]));
        }
        return make_dict(std::move(made));
      }
      case E::Attribute: {
        const Value object = eval(*expr.items[0]);
        at(expr);
        return attribute(object, expr.name);
      }
      case E::Subscript: {
        const Value object = eval(*expr.items[0]), key = eval(*expr.items[1]);
        at(expr);
        return item(object, key);
      }
      case E::Slice:
        return sliced(expr);
      case E::Call:
        return call(expr);
      case E::Filter: {
        const Value value = eval(*expr.items[0]);
        Arguments arguments = arguments_of(expr);
        at(expr);
        return apply_filter(filters_, expr.name, value, std::move(arguments));
      }
      case E::Test:
        return Value(tested(expr));
      case E::Not:
        return Value(!truth(eval(*expr.items[0])));
      case E::Negative:
        return negative(eval(*expr.items[0]));
      case E::Positive:
        return binary(budget_, "+", eval(*expr.items[0]), Value(0));
      case E::And:
      case E::Or: {
        Value left = eval(*expr.items[0]);
        return truth(left) == (expr.kind == E::Or) ? left : eval(*expr.items[1]);
      }
      case E::Binary: {
        const Value left = eval(*expr.items[0]), right = eval(*expr.items[1]);
        at(expr);
        return binary(budget_, expr.name, left, right);
      }
      case E::Concat: {
        std::string text;
        for (const Expr* one : expr.items) {
          const std::string part = shown(eval(*one));
          budget_.bytes(text.size() + part.size());
          text += part;
        }
        return Value(std::move(text));
      }
      case E::Comparison:
        return compared(expr);
      case E::Condition:
        if (truth(eval(*expr.items[1]))) return eval(*expr.items[0]);
        if (expr.items[2]) return eval(*expr.items[2]);
        return Value::undefined("the inline if-expression on line " + std::to_string(expr.line) +
                                " evaluated to false and no else section was defined.");
    }
    DSJ_CHECK(false, "an expression of kind %d", static_cast<int>(expr.kind));
    return {};
  }

  Value sliced(const Expr& expr) {
    const Value object = eval(*expr.items[0]);
    std::optional<int64_t> bounds[3];
    for (size_t i = 0; i < 3; ++i) {
      if (!expr.items[i + 1]) continue;
      const Value one = eval(*expr.items[i + 1]);
      if (one.is_none()) continue;
      if (one.is_undefined()) throw TemplateError{one.why()};
      if (!one.is_int())
        throw TemplateError{"a slice needs whole numbers, it got a value of type " +
                            type_name(one)};
      bounds[i] = one.as_int();
    }
    at(expr);
    if (const auto length = length_of(object)) budget_.step(*length / 16);
    return slice(object, bounds[0], bounds[1], bounds[2]);
  }

  bool tested(const Expr& expr) {
    const Value value = eval(*expr.items[0]);
    Arguments arguments = arguments_of(expr);
    at(expr);
    if (expr.name == "filter" || expr.name == "test") {
      return expr.name == "filter" ? is_filter(to_str(value)) : is_test(to_str(value));
    }
    return apply_test(expr.name, value, std::move(arguments));
  }

  Value compared(const Expr& expr) {
    Value left = eval(*expr.items[0]);
    for (size_t i = 0; i < expr.operators.size(); ++i) {
      Value right = eval(*expr.items[i + 1]);
      at(expr);
      budget_.step(right.weight());
      if (!relation(expr.operators[i], left, right)) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  /// str(value), charged to the budget.
  std::string shown(const Value& value) {
    if (value.is_str()) {
      budget_.bytes(value.bytes().size());
      return value.bytes();
    }
    budget_.step(value.weight());
    return to_str(value);
  }

  // ---- statements

  void print(std::string_view text) {
    budget_.bytes(text.size());
    if (out_->size() + text.size() > static_cast<size_t>(options_.bytes_max)) {
      throw TemplateError{"the text grows beyond " + std::to_string(options_.bytes_max) + " bytes"};
    }
    *out_ += text;
  }

  Flow body(const Body& statements) {
    for (const Stmt* one : statements) {
      if (const Flow flow = exec(*one); flow != Flow::Next) return flow;
    }
    return Flow::Next;
  }

  /// The output of a body that runs in its own scope.
  std::string captured(const Body& statements, Flow* flow = nullptr) {
    std::string text;
    const Instead out(out_, &text);
    const Instead scope(scope_, inner_of(scope_));
    ++captures_;
    const Flow end = body(statements);
    --captures_;
    if (flow) *flow = end;
    return text;
  }
  static std::shared_ptr<Scope> inner_of(std::shared_ptr<Scope> outer) {
    return std::make_shared<Scope>(Scope{std::move(outer), {}});
  }

  Flow exec(const Stmt& stmt) {
    const Deeper deeper(*this);
    line_ = stmt.line;
    Flow flow = Flow::Next;
    switch (stmt.kind) {
      case S::Text:
        print(stmt.text);
        break;
      case S::Print:
        print(shown(eval(*stmt.expr)));
        break;
      case S::If:
        for (const Stmt::Branch& branch : stmt.branches) {
          if (!branch.condition || truth(eval(*branch.condition))) return body(branch.body);
        }
        break;
      case S::For: {
        const Value items = eval(*stmt.expr);
        line_ = stmt.line;
        loop(stmt, items, 0);
        break;
      }
      case S::Set:
        assign(*stmt.target, eval(*stmt.expr));
        break;
      case S::SetBlock: {
        Value text(captured(stmt.body, &flow));
        assign(*stmt.target, stmt.expr ? filtered(*stmt.expr, std::move(text)) : std::move(text));
        break;
      }
      case S::Macro:
        scope_->set(stmt.id, macro(stmt));
        break;
      case S::CallBlock:
        call_block(stmt);
        break;
      case S::FilterBlock:
        print(shown(filtered(*stmt.expr, Value(captured(stmt.body, &flow)))));
        break;
      case S::With: {
        auto scope = inner_of(scope_);
        for (const auto& [target, value] : stmt.assignments) {
          Value made = eval(*value);
          const Instead inside(scope_, scope);
          assign(*target, std::move(made));
        }
        const Instead inside(scope_, scope);
        return body(stmt.body);
      }
      case S::Generation: {
        if (captures_ > 0) {
          throw TemplateError{
              "{% generation %} is in a macro, a set, a call or a filter: its place in the "
              "text is unknown"};
        }
        const size_t begin = out_->size();
        const Instead inside(scope_, inner_of(scope_));
        flow = body(stmt.body);
        generated_.emplace_back(begin, out_->size());
        break;
      }
      case S::Block:
        break;
      case S::Break:
        return Flow::Break;
      case S::Continue:
        return Flow::Continue;
    }
    return flow;
  }

  /// Applies the filters of a block; the innermost has no input expression.
  Value filtered(const Expr& expr, Value text) {
    const Deeper deeper(*this);
    if (expr.items[0]) text = filtered(*expr.items[0], std::move(text));
    Arguments arguments = arguments_of(expr);
    at(expr);
    return apply_filter(filters_, expr.name, text, std::move(arguments));
  }

  void loop(const Stmt& stmt, const Value& over, int level) {
    const auto outer = scope_;
    Values items = items_of(over);
    budget_.step(std::ssize(items));
    if (stmt.condition) {
      Values kept;
      for (Value& item : items) {
        const Instead inside(scope_, inner_of(outer));
        assign(*stmt.target, item);
        if (truth(eval(*stmt.condition))) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    const auto state = std::make_shared<Loop>(std::move(items), level);
    if (stmt.recursive) {
      state->recurse = [this, &stmt, outer, level](const Value& inner) {
        std::string text;
        const Instead out(out_, &text);
        const Instead scope(scope_, outer);
        ++captures_;
        loop(stmt, inner, level + 1);
        --captures_;
        return Value(std::move(text));
      };
    }
    const Deeper deeper(*this);
    for (; state->at < std::ssize(state->items()); ++state->at) {
      const Instead inside(scope_, inner_of(outer));
      if (loop_id_ >= 0) scope_->set(loop_id_, Value(std::shared_ptr<Object>(state)));
      assign(*stmt.target, state->items()[static_cast<size_t>(state->at)]);
      if (body(stmt.body) == Flow::Break) break;
    }
    if (state->items().empty()) {
      const Instead inside(scope_, inner_of(outer));
      body(stmt.else_body);
    }
  }

  // ---- macros

  int id_of(std::string_view name) const {
    const auto found = std::ranges::find(syntax_.names, name);
    return found == syntax_.names.end() ? -1 : static_cast<int>(found - syntax_.names.begin());
  }

  Value macro(const Stmt& stmt) {
    const auto made =
        std::make_shared<Function>(stmt.text, [this, &stmt, scope = scope_](Arguments arguments) {
          return run_macro(stmt, scope, std::move(arguments));
        });
    functions_.push_back(made);
    budget_.step(16);
    return Value(std::shared_ptr<Object>(made));
  }

  Value run_macro(const Stmt& stmt, const std::shared_ptr<Scope>& defined_in, Arguments given) {
    const Deeper deeper(*this);
    const auto scope = inner_of(defined_in);
    const size_t count = stmt.parameters.size();
    std::vector<bool> is_set(count, false);
    for (size_t i = 0; i < std::min(count, given.positional.size()); ++i) {
      scope->set(stmt.parameters[i].id, given.positional[i]);
      is_set[i] = true;
    }
    Dict others;
    Value caller;
    bool has_caller = false;
    for (auto& [name, value] : given.named) {
      const auto at = std::ranges::find(stmt.parameters, name, &Parameter::name);
      if (at != stmt.parameters.end()) {
        const auto i = static_cast<size_t>(at - stmt.parameters.begin());
        if (is_set[i])
          throw TemplateError{"the macro '" + stmt.text + "' gets '" + name + "' twice"};
        scope->set(at->id, std::move(value));
        is_set[i] = true;
      } else if (name == "caller" && stmt.uses_caller) {
        caller = std::move(value);
        has_caller = true;
      } else {
        others.set(Value(name), std::move(value));
      }
    }
    if (!others.entries().empty() && !stmt.uses_kwargs) {
      throw TemplateError{"the macro '" + stmt.text + "' has no parameter '" +
                          to_str(others.entries()[0].first) + "'"};
    }
    if (given.positional.size() > count && !stmt.uses_varargs) {
      throw TemplateError{"the macro '" + stmt.text + "' takes at most " + std::to_string(count) +
                          " arguments, it got " + std::to_string(given.positional.size())};
    }
    if (stmt.uses_kwargs) scope->set(id_of("kwargs"), make_dict(std::move(others)));
    if (stmt.uses_varargs) {
      const auto first = given.positional.begin() +
                         static_cast<std::ptrdiff_t>(std::min(count, given.positional.size()));
      scope->set(id_of("varargs"),
                 make_sequence(Values(first, given.positional.end()), Sequence::Kind::Tuple));
    }
    if (stmt.uses_caller &&
        std::ranges::find(stmt.parameters, "caller", &Parameter::name) == stmt.parameters.end()) {
      scope->set(id_of("caller"), has_caller ? caller : Value::undefined("No caller defined"));
    }
    const int line = line_;
    std::string text;
    const Instead out(out_, &text);
    const Instead inside(scope_, scope);
    for (size_t i = 0; i < count; ++i) {
      if (is_set[i]) continue;
      const Parameter& one = stmt.parameters[i];
      scope->set(one.id, one.preset
                             ? eval(*one.preset)
                             : Value::undefined("parameter '" + one.name + "' was not provided"));
    }
    ++captures_;
    body(stmt.body);
    --captures_;
    line_ = line;
    return Value(std::move(text));
  }

  void call_block(const Stmt& stmt) {
    const Expr& expr = *stmt.expr;
    const Value function = eval(*expr.items[0]);
    Arguments arguments = arguments_of(expr);
    arguments.named.emplace_back("caller", macro(stmt));
    at(expr);
    print(shown(call_value(function, std::move(arguments))));
  }

  const Syntax& syntax_;
  const RenderOptions& options_;
  int& line_;
  Budget budget_;
  const FilterEnvironment filters_;
  const AttributeOf attribute_;
  std::vector<std::optional<Value>> globals_;
  const int loop_id_ = id_of("loop");
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  int depth_ = 0;
  int captures_ = 0;  ///< enclosing bodies whose output is captured
  std::vector<std::pair<size_t, size_t>> generated_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Function>> functions_;
};

}  // namespace

Rendered evaluate(const Syntax& syntax, const Context& context, const RenderOptions& options,
                  int& line) {
  return Evaluator(syntax, context, options, line).run();
}

}  // namespace dsj::jinja
