#include "common/jinja/list_filters.h"

#include <algorithm>

#include "common/jinja/operators.h"
#include "common/jinja/predicates.h"
#include "common/jinja/python_text.h"
#include "common/text.h"

namespace dsj::jinja {
namespace {

Value generator(Values items) {
  return make_sequence(std::move(items), Sequence::Kind::Generator);
}

/// The value at the path `attribute`, such as "a.b.0".
Value at_path(const FilterCall& call, Value value, const Value& attribute) {
  if (attribute.is_int()) return call.environment.item(value, attribute);
  for (const auto part : split(attribute.bytes(), ".", -1, false)) {
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    const auto number = is_number ? text::parse_int(part) : std::nullopt;
    value = call.environment.item(value, number ? Value(*number) : Value(part));
  }
  return value;
}

bool is_path(const Value& attribute) {
  return attribute.is_str() || attribute.is_int();
}

/// The key by which items are compared. `attribute` may be none.
Value key_of(const FilterCall& call, const Value& item, const Value& attribute,
             bool case_sensitive) {
  const auto plain = [&](Value key) {
    return key.is_str() && !case_sensitive ? Value(to_lower(key.bytes())) : key;
  };
  if (!is_path(attribute)) return plain(item);
  if (call.name == "sort" && attribute.is_str() && attribute.bytes().contains(',')) {
    Values keys;
    for (const auto one : split(attribute.bytes(), ",", -1, false))
      keys.push_back(plain(at_path(call, item, Value(one))));
    return make_list(std::move(keys));
  }
  return plain(at_path(call, item, attribute));
}

Values sorted(const FilterCall& call, Values items, const std::function<Value(const Value&)>& key,
              bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) {
    keyed.emplace_back(key(item), item);
    call.environment.budget.step(keyed.back().first.weight() * 8);
  }
  std::ranges::stable_sort(keyed, [reverse](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  for (size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
  return items;
}

Value sort(const FilterCall& call) {
  const Bound bound = call.bind({"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.flag(1, false);
  const Value attribute = bound.get(2, Value::none());
  return make_list(sorted(
      call, call.items(),
      [&](const Value& item) { return key_of(call, item, attribute, case_sensitive); },
      bound.flag(0, false)));
}

Value dictsort(const FilterCall& call) {
  const Bound bound = call.bind({"case_sensitive", "by", "reverse"});
  const std::string by = bound.text(1, "key");
  if (by != "key" && by != "value") throw TemplateError{"dictsort sorts by key or value"};
  const Dict* dict = call.value.dict();
  if (!dict)
    throw TemplateError{"dictsort needs a dict, it got a value of type " + type_name(call.value)};
  Values items;
  for (const auto& [key, value] : dict->entries())
    items.push_back(make_sequence({key, value}, Sequence::Kind::Tuple));
  const size_t place = by == "key" ? 0 : 1;
  return make_list(sorted(
      call, std::move(items),
      [&](const Value& item) {
        return key_of(call, item.sequence()->items[place], Value::none(), bound.flag(0, false));
      },
      bound.flag(2, false)));
}

Value extreme(const FilterCall& call, bool least) {
  const Bound bound = call.bind({"case_sensitive", "attribute"});
  const Values items = call.items();
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    return key_of(call, item, bound.get(1, Value::none()), bound.flag(0, false));
  };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const int order = compare(key(items[i]), key(items[best]));
    if (least ? order < 0 : order > 0) best = i;
  }
  return items[best];
}

Value unique(const FilterCall& call) {
  const Bound bound = call.bind({"case_sensitive", "attribute"});
  Values keys, kept;
  for (const Value& item : call.items()) {
    Value key = key_of(call, item, bound.get(1, Value::none()), bound.flag(0, false));
    call.environment.budget.step(std::ssize(keys) * key.weight());
    if (std::ranges::any_of(keys, [&](const Value& one) { return equals(one, key); })) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return generator(std::move(kept));
}

/// The arguments from `first` on, which are passed to another filter or test.
Arguments behind(const Arguments& arguments, size_t first) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(first));
  return rest;
}

std::string named(const FilterCall& call, size_t i) {
  if (i >= call.arguments.positional.size() || !call.arguments.positional[i].is_str()) {
    throw TemplateError{"the filter " + std::string(call.name) + " needs a name"};
  }
  return call.arguments.positional[i].bytes();
}

Value map(const FilterCall& call) {
  Values made;
  if (!truth(call.value)) return generator({});
  if (call.arguments.positional.empty()) {
    const Bound bound = call.bind({"attribute", "default"});
    for (const Value& item : call.items()) {
      Value found = at_path(call, item, bound.need(0));
      made.push_back(found.is_undefined() && bound.has(1) ? bound.need(1) : std::move(found));
    }
    return generator(std::move(made));
  }
  const std::string filter = named(call, 0);
  for (const Value& item : call.items())
    made.push_back(call.apply(call.environment, filter, item, behind(call.arguments, 1)));
  return generator(std::move(made));
}

/// select, reject, selectattr, rejectattr
Value select(const FilterCall& call, bool by_attribute, bool keeps) {
  if (!truth(call.value)) return generator({});
  const size_t test_at = by_attribute ? 1 : 0;
  if (by_attribute && call.arguments.positional.empty())
    throw TemplateError{"the filter " + std::string(call.name) + " needs an attribute's name"};
  const bool tests = call.arguments.positional.size() > test_at;
  const std::string test = tests ? named(call, test_at) : "";
  Values made;
  for (const Value& item : call.items()) {
    const Value subject = by_attribute ? at_path(call, item, call.arguments.positional[0]) : item;
    const bool holds =
        tests ? apply_test(test, subject, behind(call.arguments, test_at + 1)) : truth(subject);
    if (holds == keeps) made.push_back(item);
  }
  return generator(std::move(made));
}

Value join(const FilterCall& call) {
  const Bound bound = call.bind({"d", "attribute"});
  const std::string separator = bound.text(0, "");
  std::string out;
  bool first = true;
  for (const Value& item : call.items()) {
    if (!first) out += separator;
    first = false;
    const std::string part =
        to_str(bound.has(1) && is_path(bound.need(1)) ? at_path(call, item, bound.need(1)) : item);
    call.environment.budget.bytes(part.size() + separator.size());
    out += part;
  }
  return Value(std::move(out));
}

Value first(const FilterCall& call) {
  call.bind({});
  const Sequence* sequence = call.value.sequence();
  if (sequence && sequence->kind == Sequence::Kind::Generator) {  // the other items stay
    if (sequence->taken < sequence->items.size()) return sequence->items[sequence->taken++];
    return Value::undefined("No first item, sequence was empty.");
  }
  const Values items = call.items();
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

void refuse_generator(const FilterCall& call) {
  const Sequence* sequence = call.value.sequence();
  if (sequence && sequence->kind == Sequence::Kind::Generator)
    throw TemplateError{"the filter " + std::string(call.name) +
                        " needs a list, it got a generator: make it a list first (| list)"};
}

Value last(const FilterCall& call) {
  call.bind({});
  refuse_generator(call);
  const Values items = call.items();
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(const FilterCall& call) {
  call.bind({});
  refuse_generator(call);
  Values items = call.items();
  std::ranges::reverse(items);
  if (!call.value.is_str()) return generator(std::move(items));
  std::string out;
  for (const Value& item : items) out += item.bytes();
  return call.text(std::move(out));
}

Value length(const FilterCall& call) {
  call.bind({});
  const auto found = length_of(call.value);
  if (!found) throw TemplateError{"a value of type " + type_name(call.value) + " has no length"};
  return Value(*found);
}

Value items(const FilterCall& call) {
  call.bind({});
  if (call.value.is_undefined()) return generator({});
  const Dict* dict = call.value.dict();
  if (!dict)
    throw TemplateError{"items needs a dict, it got a value of type " + type_name(call.value)};
  Values made;
  for (const auto& [key, value] : dict->entries())
    made.push_back(make_sequence({key, value}, Sequence::Kind::Tuple));
  return generator(std::move(made));
}

Value batch(const FilterCall& call) {
  const Bound bound = call.bind({"linecount", "fill_with"});
  const int64_t count = bound.whole(0, 0);
  if (count < 1) throw TemplateError{"batch needs a count of at least 1"};
  Values made, row;
  for (const Value& item : call.items()) {
    if (std::ssize(row) == count) made.push_back(make_list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (bound.has(1) && !bound.need(1).is_none()) {
      call.environment.budget.step(count);
      row.resize(static_cast<size_t>(count), bound.need(1));
    }
    made.push_back(make_list(std::move(row)));
  }
  return generator(std::move(made));
}

Value slices(const FilterCall& call) {
  const Bound bound = call.bind({"slices", "fill_with"});
  const int64_t count = bound.whole(0, 0);
  if (count < 1) throw TemplateError{"slice needs a count of at least 1"};
  call.environment.budget.step(count);
  const Values all = call.items();
  const int64_t per = std::ssize(all) / count, more = std::ssize(all) % count;
  Values made;
  for (int64_t i = 0, at = 0; i < count; ++i) {
    const int64_t end = at + per + (i < more ? 1 : 0);
    Values part(all.begin() + at, all.begin() + end);
    if (bound.has(1) && !bound.need(1).is_none() && i >= more) part.push_back(bound.need(1));
    made.push_back(make_list(std::move(part)));
    at = end;
  }
  return generator(std::move(made));
}

Value sum(const FilterCall& call) {
  const Bound bound = call.bind({"attribute", "start"});
  Value total = bound.get(1, Value(0));
  for (const Value& item : call.items()) {
    const Value one =
        bound.has(0) && is_path(bound.need(0)) ? at_path(call, item, bound.need(0)) : item;
    total = binary(call.environment.budget, "+", total, one);
  }
  return total;
}

}  // namespace

const FilterTable& list_filters() {
  static const FilterTable table = {
      {"batch", batch},
      {"count", length},
      {"dictsort", dictsort},
      {"first", first},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list",
       [](const FilterCall& call) {
         call.bind({});
         return make_list(call.items());
       }},
      {"map", map},
      {"max", [](const FilterCall& call) { return extreme(call, false); }},
      {"min", [](const FilterCall& call) { return extreme(call, true); }},
      {"reject", [](const FilterCall& call) { return select(call, false, false); }},
      {"rejectattr", [](const FilterCall& call) { return select(call, true, false); }},
      {"reverse", reverse},
      {"select", [](const FilterCall& call) { return select(call, false, true); }},
      {"selectattr", [](const FilterCall& call) { return select(call, true, true); }},
      {"slice", slices},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  };
  return table;
}

}  // namespace dsj::jinja
