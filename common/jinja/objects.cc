#include "common/jinja/objects.h"

#include <algorithm>

namespace dsj::jinja {

void Namespace::set(const std::string& name, Value value) {
  if (name.starts_with('_'))
    throw TemplateError{"a namespace takes no attribute that begins with _: '" + name + "'"};
  attributes[name] = std::move(value);
}

std::optional<Value> Loop::attribute(std::string_view name) const {
  const int64_t length = std::ssize(items_);
  const auto item = [&](int64_t place) {
    if (place >= 0 && place < length) return items_[static_cast<size_t>(place)];
    return Value::undefined(place < 0 ? "there is no previous item" : "there is no next item");
  };
  if (name == "index") return Value(at + 1);
  if (name == "index0") return Value(at);
  if (name == "revindex") return Value(length - at);
  if (name == "revindex0") return Value(length - at - 1);
  if (name == "first") return Value(at == 0);
  if (name == "last") return Value(at + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(level_ + 1);
  if (name == "depth0") return Value(level_);
  if (name == "previtem") return item(at - 1);
  if (name == "nextitem") return item(at + 1);
  return std::nullopt;
}

Value Loop::call(std::string_view name, Arguments arguments) {
  if (name == "cycle") {
    if (arguments.positional.empty()) throw TemplateError{"loop.cycle needs items"};
    return arguments.positional[static_cast<size_t>(at) % arguments.positional.size()];
  }
  if (name != "changed") throw TemplateError{"loop." + std::string(name) + " cannot be called"};
  const bool same =
      last_changed_ && std::ranges::equal(*last_changed_, arguments.positional, equals);
  last_changed_ = std::move(arguments.positional);
  return Value(!same);
}

Cycler::Cycler(Values items) : items_(std::move(items)) {
  if (items_.empty()) throw TemplateError{"cycler needs items"};
  for (const Value& item : items_) depth_ = std::max(depth_, item.depth() + 1);
}

std::optional<Value> Cycler::attribute(std::string_view name) const {
  return name == "current" ? std::optional(items_[at_]) : std::nullopt;
}

Value Cycler::call(std::string_view name) {
  if (name == "reset") {
    at_ = 0;
    return Value::none();
  }
  if (name != "next") throw TemplateError{"cycler." + std::string(name) + " cannot be called"};
  const Value now = items_[at_];
  at_ = (at_ + 1) % items_.size();
  return now;
}

}  // namespace dsj::jinja
