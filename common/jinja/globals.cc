#include "common/jinja/globals.h"

#include <ctime>
#include <utility>

namespace dsj::jinja {
namespace {

constexpr int64_t kRangeMax = 100'000;  ///< the limit of Jinja2's sandbox

Value range(Budget& budget, Arguments given) {
  if (!given.named.empty() || given.positional.empty() || given.positional.size() > 3)
    throw TemplateError{"range takes one to three numbers"};
  for (const Value& one : given.positional) {
    if (!one.is_int())
      throw TemplateError{"range needs whole numbers, it got a value of type " + type_name(one)};
  }
  const auto at = [&](size_t i) { return given.positional[i].as_int(); };
  const bool one = given.positional.size() == 1;
  const int64_t start = one ? 0 : at(0), stop = one ? at(0) : at(1);
  const int64_t step = given.positional.size() == 3 ? at(2) : 1;
  if (step == 0) throw TemplateError{"range with step 0"};
  Values items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (std::ssize(items) >= kRangeMax) throw TemplateError{"range is longer than 100000"};
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  budget.step(std::ssize(items));
  return make_sequence(std::move(items), Sequence::Kind::Range);
}

Value dict_of(Arguments given) {
  Dict made;
  if (given.positional.size() > 1) throw TemplateError{"dict takes one value and names"};
  if (!given.positional.empty()) {
    if (const Dict* other = given.positional[0].dict()) {
      made = *other;
    } else {
      for (const Value& pair : items_of(given.positional[0])) {
        const Values two = items_of(pair);
        if (two.size() != 2) throw TemplateError{"dict needs pairs"};
        check_key(two[0]);
        made.set(two[0], two[1]);
      }
    }
  }
  for (auto& [name, value] : given.named) made.set(Value(name), std::move(value));
  return make_dict(std::move(made));
}

Value new_namespace(Namespaces& namespaces, Arguments given) {
  auto made = std::make_shared<Namespace>();
  const Value all = dict_of(std::move(given));
  for (const auto& [key, value] : all.dict()->entries()) {
    made->set(to_str(key), value);
  }
  namespaces.push_back(made);
  return Value(std::shared_ptr<Object>(made));
}

Value joiner(Arguments given) {
  const Bound bound("joiner", std::move(given), {"sep"});
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(
      "joiner", [separator = bound.text(0, ", "), used = false](Arguments) mutable {
        return std::exchange(used, true) ? Value(separator) : Value("");
      })));
}

Value date(Budget& budget, int64_t now, Arguments given) {
  const Bound bound("strftime_now", std::move(given), {"format"});
  std::string format;
  const std::string wanted = to_str(bound.need(0));
  for (size_t i = 0; i < wanted.size(); ++i) {  // a time without a zone has no %z and no %Z
    if (wanted[i] != '%' || i + 1 >= wanted.size()) {
      format += wanted[i];
      continue;
    }
    const char kind = wanted[++i];
    if (kind == 'f') {
      format += "000000";
    } else if (kind != 'z' && kind != 'Z') {
      format += {'%', kind};
    }
  }
  if (format.empty()) return Value("");
  const std::time_t seconds = now;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::string text(format.size() * 64 + 64, '\0');
  budget.bytes(text.size());
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
  return Value(std::move(text));
}

}  // namespace

void check_key(const Value& key) {
  const Sequence* sequence = key.sequence();
  if (key.dict() || (sequence && sequence->kind != Sequence::Kind::Tuple))
    throw TemplateError{"a value of type " + type_name(key) + " cannot be a key"};
}

std::optional<Value> global_function(const std::string& name,
                                     const GlobalEnvironment& environment) {
  const auto function = [&](Function::Call call) {
    return Value(std::shared_ptr<Object>(std::make_shared<Function>(name, std::move(call))));
  };
  if (name == "range")
    return function([environment](Arguments a) { return range(environment.budget, std::move(a)); });
  if (name == "dict") return function([](Arguments a) { return dict_of(std::move(a)); });
  if (name == "namespace")
    return function(
        [environment](Arguments a) { return new_namespace(environment.namespaces, std::move(a)); });
  if (name == "cycler") {
    return function([](Arguments a) {
      return Value(std::shared_ptr<Object>(std::make_shared<Cycler>(std::move(a.positional))));
    });
  }
  if (name == "joiner") return function([](Arguments a) { return joiner(std::move(a)); });
  if (name == "raise_exception") {
    return function([](Arguments a) -> Value {
      const Bound bound("raise_exception", std::move(a), {"message"});
      throw TemplateError{to_str(bound.need(0))};
    });
  }
  if (name == "strftime_now") {
    return function([environment](Arguments a) {
      return date(environment.budget, environment.now, std::move(a));
    });
  }
  if (name == "lipsum") {
    return function([](Arguments) -> Value { throw TemplateError{"lipsum is not built"}; });
  }
  return std::nullopt;
}

}  // namespace dsj::jinja
