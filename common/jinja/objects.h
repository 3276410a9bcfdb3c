// Objects of a rendering that have state or can be called: scopes, namespaces, loops, functions.
// Internal to common/jinja.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/jinja/arguments.h"
#include "common/jinja/value.h"

namespace dsj::jinja {

/// Names with their values; other names are in the outer scopes.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<int, Value>> values;

  Value* find_here(int id) {
    for (auto& [name, value] : values) {
      if (name == id) return &value;
    }
    return nullptr;
  }
  void set(int id, Value value) {
    if (Value* found = find_here(id)) {
      *found = std::move(value);
    } else {
      values.emplace_back(id, std::move(value));
    }
  }
};

/// namespace(a=1): an object whose attributes a template may assign from an inner scope. The
/// evaluator empties it at the end, so that one that contains itself is freed.
class Namespace : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(std::string_view name) const override {
    const auto found = attributes.find(std::string(name));
    return found == attributes.end() ? std::nullopt : std::optional(found->second);
  }
  /// Throws TemplateError if the name begins with _.
  void set(const std::string& name, Value value);
  std::map<std::string, Value> attributes;
};

/// A callable: a function of Jinja's, a bound method, a macro.
class Function : public Object {
 public:
  using Call = std::function<Value(Arguments)>;
  Function(std::string name, Call call, int depth = 0)
      : name_(std::move(name)), call_(std::move(call)), depth_(depth) {}
  std::string type_name() const override { return "function " + name_; }
  bool is_callable() const override { return true; }
  int depth() const override { return depth_; }
  Value call(Arguments arguments) const { return call_(std::move(arguments)); }
  /// Called at the end of a rendering, because a macro and its scope refer to each other.
  void release() { call_ = nullptr; }

 private:
  const std::string name_;
  Call call_;
  const int depth_;
};

/// The variable loop.
class Loop : public Object {
 public:
  Loop(Values items, int depth) : items_(std::move(items)), level_(depth) {}
  std::string type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(std::string_view name) const override;
  bool is_callable() const override { return recurse != nullptr; }
  /// loop.cycle(a, b) and loop.changed(x).
  Value call(std::string_view name, Arguments arguments);

  int64_t at = 0;
  std::function<Value(const Value& items)> recurse;  ///< for {% for ... recursive %}
  const Values& items() const { return items_; }
  int level() const { return level_; }

 private:
  const Values items_;
  const int level_;
  std::optional<Values> last_changed_;
};

/// cycler(a, b).next(), joiner(", ")
class Cycler : public Object {
 public:
  explicit Cycler(Values items);
  std::string type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(std::string_view name) const override;
  int depth() const override { return depth_; }
  Value call(std::string_view name);

 private:
  const Values items_;
  int depth_ = 0;
  size_t at_ = 0;
};

}  // namespace dsj::jinja
