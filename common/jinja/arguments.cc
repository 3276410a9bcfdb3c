#include "common/jinja/arguments.h"

#include <algorithm>

namespace dsj::jinja {

Bound::Bound(std::string_view what, Arguments given, std::initializer_list<std::string_view> names)
    : what_(what), names_(names.begin(), names.end()), values_(names.size()) {
  if (given.positional.size() > values_.size()) {
    throw TemplateError{what_ + " takes at most " + std::to_string(values_.size()) +
                        " arguments, it got " + std::to_string(given.positional.size())};
  }
  for (size_t i = 0; i < given.positional.size(); ++i) values_[i] = std::move(given.positional[i]);
  for (auto& [name, value] : given.named) {
    const auto at = static_cast<size_t>(std::ranges::find(names_, name) - names_.begin());
    if (at == names_.size()) throw TemplateError{what_ + " has no parameter '" + name + "'"};
    if (values_[at]) throw TemplateError{what_ + " gets '" + name + "' twice"};
    values_[at] = std::move(value);
  }
}

const Value& Bound::need(size_t i) const {
  if (!values_[i]) throw TemplateError{what_ + " needs the argument '" + names_[i] + "'"};
  return *values_[i];
}

int64_t Bound::whole(size_t i, int64_t preset) const {
  if (!has(i)) return preset;
  if (!values_[i]->is_int()) {
    throw TemplateError{what_ + " needs a whole number as '" + names_[i] +
                        "', got a value of type " + type_name(*values_[i])};
  }
  return values_[i]->as_int();
}

std::string Bound::text(size_t i, std::string_view preset) const {
  return has(i) ? to_str(*values_[i]) : std::string(preset);
}

void Budget::step(int64_t count) {
  steps_ -= count;
  if (steps_ < 0) throw TemplateError{"the template takes too many steps for one conversation"};
}

void Budget::bytes(size_t count) {
  if (count > static_cast<size_t>(bytes_max_)) {
    throw TemplateError{"a text of " + std::to_string(count) + " bytes is made, at most " +
                        std::to_string(bytes_max_) + " are allowed"};
  }
  step(static_cast<int64_t>(count / 16));
}

}  // namespace dsj::jinja
