#include "common/jinja/predicates.h"

#include <functional>
#include <map>

#include "common/jinja/operators.h"
#include "common/jinja/python_text.h"

namespace dsj::jinja {
namespace {

using Test = std::function<bool(const Value& value, const Value& other)>;

struct Entry {
  bool needs_other = false;
  Test test;
};

/// Python's value % by == rest, which also works for other types than integers.
bool rest_is(const Value& value, const Value& by, int rest) {
  Budget budget(1 << 20, 1 << 20);
  return equals(binary(budget, "%", value, by), Value(rest));
}

Entry relation_test(const char* op) {
  return {true, [op](const Value& a, const Value& b) { return relation(op, a, b); }};
}
Entry simple(bool (*test)(const Value&)) {
  return {false, [test](const Value& a, const Value&) { return test(a); }};
}

const std::map<std::string_view, Entry>& tests() {
  static const std::map<std::string_view, Entry> table = {
      {"!=", relation_test("!=")},
      {"<", relation_test("<")},
      {"<=", relation_test("<=")},
      {"==", relation_test("==")},
      {">", relation_test(">")},
      {">=", relation_test(">=")},
      {"boolean", simple([](const Value& a) { return a.is_bool(); })},
      {"callable", simple([](const Value& a) {
         return a.is_undefined() || (a.object() && a.object()->is_callable());
       })},
      {"defined", simple([](const Value& a) { return !a.is_undefined(); })},
      {"divisibleby", {true, [](const Value& a, const Value& b) { return rest_is(a, b, 0); }}},
      {"eq", relation_test("==")},
      {"equalto", relation_test("==")},
      {"escaped", simple([](const Value& a) { return a.is_markup(); })},
      {"even", simple([](const Value& a) { return rest_is(a, Value(2), 0); })},
      {"false", simple([](const Value& a) { return a.is_bool() && !truth(a); })},
      {"float", simple([](const Value& a) { return a.is_float(); })},
      {"ge", relation_test(">=")},
      {"greaterthan", relation_test(">")},
      {"gt", relation_test(">")},
      {"in", relation_test("in")},
      {"integer",
       simple([](const Value& a) { return (a.is_int() && !a.is_bool()) || a.is_big(); })},
      {"iterable", simple([](const Value& a) {
         return a.is_undefined() || a.is_str() || a.sequence() || a.dict() ||
                (a.object() && a.object()->attribute("__iter__"));
       })},
      {"le", relation_test("<=")},
      {"lessthan", relation_test("<")},
      {"lower", simple([](const Value& a) {
         const std::string text = to_str(a), made = to_lower(text);
         return text == made && to_upper(text) != text;
       })},
      {"lt", relation_test("<")},
      {"mapping", simple([](const Value& a) { return a.dict() != nullptr; })},
      {"ne", relation_test("!=")},
      {"none", simple([](const Value& a) { return a.is_none(); })},
      {"number", simple([](const Value& a) { return a.is_number(); })},
      {"odd", simple([](const Value& a) { return rest_is(a, Value(2), 1); })},
      {"sameas", {true, [](const Value& a, const Value& b) { return a.same_as(b); }}},
      {"sequence", simple([](const Value& a) {
         return a.is_undefined() || a.is_str() || a.dict() ||
                (a.sequence() && a.sequence()->has_places());
       })},
      {"string", simple([](const Value& a) { return a.is_str(); })},
      {"true", simple([](const Value& a) { return a.is_bool() && truth(a); })},
      {"undefined", simple([](const Value& a) { return a.is_undefined(); })},
      {"upper", simple([](const Value& a) {
         const std::string text = to_str(a);
         return text == to_upper(text) && to_lower(text) != text;
       })},
  };
  return table;
}

}  // namespace

bool is_test(std::string_view name) {
  return tests().contains(name);
}

bool apply_test(std::string_view name, const Value& value, Arguments arguments) {
  const auto found = tests().find(name);
  if (found == tests().end()) throw TemplateError{"there is no test '" + std::string(name) + "'"};
  if (!found->second.needs_other) {
    const Bound none("the test " + std::string(name), std::move(arguments), {});
    return found->second.test(value, Value());
  }
  const Bound bound("the test " + std::string(name), std::move(arguments), {"other"});
  return found->second.test(value, bound.need(0));
}

}  // namespace dsj::jinja
