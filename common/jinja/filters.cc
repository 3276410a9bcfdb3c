#include "common/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "common/jinja/operators.h"
#include "common/jinja/predicates.h"
#include "common/jinja/printf.h"
#include "common/jinja/python_text.h"
#include "common/text.h"

namespace dsj::jinja {
namespace {

struct FilterCall {
  const FilterEnvironment& environment;
  std::string_view name;
  const Value& value;
  Arguments& arguments;

  Bound bind(std::initializer_list<std::string_view> names) const {
    return Bound("the filter " + std::string(name), std::move(arguments), names);
  }
  /// Markup stays Markup.
  Value text(std::string made) const {
    environment.budget.bytes(made.size());
    return Value(std::move(made), value.is_markup());
  }
  Values items() const {
    Values made = items_of(value);
    environment.budget.step(std::ssize(made));
    return made;
  }
};

Value generator(Values items) {
  return make_sequence(std::move(items), Sequence::Kind::Generator);
}

/// "a.b.0": the path that `attribute` names.
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

/// What items are compared by. `attribute` may be none.
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

/// The part of the arguments that goes on to another filter or test.
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
    made.push_back(apply_filter(call.environment, filter, item, behind(call.arguments, 1)));
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
  if (sequence && sequence->kind == Sequence::Kind::Generator) {  // the others stay
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

// ---- texts

template <std::string (*made)(std::string_view)>
Value text_filter(const FilterCall& call) {
  call.bind({});
  return call.text(made(to_str(call.value)));
}

/// Jinja's own: words end at white space and at - ( { [ <.
std::string title_words(std::string_view text) {
  std::string out;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    if (begin == end) return;
    const size_t first = character_bytes(text[begin]);
    out += to_upper(text.substr(begin, first)) +
           to_lower(text.substr(begin + first, end - begin - first));
  };
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    const char32_t c = next_code_point(text, at);
    if (!is_space(c) && !std::u32string_view(U"-({[<").contains(c)) continue;
    flush(here);
    out += text.substr(here, at - here);
    begin = at;
  }
  flush(text.size());
  return out;
}

Value indent(const FilterCall& call) {
  const Bound bound = call.bind({"width", "first", "blank"});
  if (!call.value.is_str())
    throw TemplateError{"indent needs a text, it got a value of type " + type_name(call.value)};
  const std::string text = to_str(call.value) + "\n";
  std::string by;
  if (bound.has(0) && bound.need(0).is_str()) {
    by = bound.need(0).bytes();
  } else {
    const int64_t width = std::max<int64_t>(0, bound.whole(0, 4));
    call.environment.budget.bytes(static_cast<size_t>(width));
    by.assign(static_cast<size_t>(width), ' ');
  }
  std::string out = bound.flag(1, false) ? by : "";
  bool at_first = true;
  const auto lines = split_lines(text, false);
  call.environment.budget.bytes(text.size() + lines.size() * by.size());
  for (const auto line : lines) {
    if (!at_first) out += "\n";
    if (!at_first && (bound.flag(2, false) || !line.empty())) out += by;
    at_first = false;
    out += line;
  }
  return call.text(std::move(out));
}

Value replace(const FilterCall& call) {
  const Bound bound = call.bind({"old", "new", "count"});
  const std::string text = to_str(call.value), from = to_str(bound.need(0)),
                    to = to_str(bound.need(1));
  const bool all = !bound.has(2) || bound.need(2).is_none();
  call.environment.budget.bytes(text.size() +
                                static_cast<size_t>(occurrences(text, from)) * to.size());
  return Value(replaced(text, from, to, all ? -1 : bound.whole(2, -1)));
}

Value trim(const FilterCall& call) {
  const Bound bound = call.bind({"chars"});
  const std::string text = to_str(call.value);
  const bool white = !bound.has(0) || bound.need(0).is_none();
  const std::string characters = white ? "" : bound.text(0, "");
  return call.text(std::string(
      stripped(text, {}, white ? std::nullopt : std::optional<std::string_view>(characters))));
}

Value center(const FilterCall& call) {
  const Bound bound = call.bind({"width"});
  const std::string text = to_str(call.value);
  const int64_t width = bound.whole(0, 80),
                missing = width - static_cast<int64_t>(code_points(text));
  if (missing <= 0) return call.text(text);
  call.environment.budget.bytes(static_cast<size_t>(missing));
  const int64_t left = missing / 2 + (missing & width & 1);
  return call.text(std::string(static_cast<size_t>(left), ' ') + text +
                   std::string(static_cast<size_t>(missing - left), ' '));
}

Value truncate(const FilterCall& call) {
  const Bound bound = call.bind({"length", "killwords", "end", "leeway"});
  if (!call.value.is_str())
    throw TemplateError{"truncate needs a text, it got a value of type " + type_name(call.value)};
  const std::string text = to_str(call.value), end = bound.text(2, "...");
  const int64_t length = bound.whole(0, 255), leeway = bound.whole(3, 5);
  const auto end_length = static_cast<int64_t>(code_points(end));
  if (length < end_length || leeway < 0)
    throw TemplateError{"truncate needs a length that holds its end"};
  if (static_cast<int64_t>(code_points(text)) <= length + leeway) return call.text(text);
  std::string cut = text.substr(0, byte_of(text, static_cast<size_t>(length - end_length)));
  if (!bound.flag(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return call.text(cut + end);
}

Value wordcount(const FilterCall& call) {
  call.bind({});
  const std::string text = to_str(call.value);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    const bool is_word = is_alpha(c) || is_digit(c) || c == '_';
    words += is_word && !inside;
    inside = is_word;
  }
  return Value(words);
}

// ---- numbers

Value absolute(const FilterCall& call) {
  call.bind({});
  if (!call.value.is_number() || call.value.is_big())
    throw TemplateError{"abs needs a number, it got a value of type " + type_name(call.value)};
  const bool below =
      call.value.is_int() ? call.value.as_int() < 0 : std::signbit(call.value.as_double());
  return below ? negative(call.value) : binary(call.environment.budget, "+", call.value, Value(0));
}

/// float(text), as Python reads it.
std::optional<double> read_double(const std::string& bytes) {
  std::string text(stripped(bytes, {}));
  if (text.find_first_of("xXpP") != std::string::npos || text.empty()) return std::nullopt;
  std::erase(text, '_');
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size() ? std::optional(value) : std::nullopt;
}

Value to_int(const FilterCall& call) {
  const Bound bound = call.bind({"default", "base"});
  const Value preset = bound.get(0, Value(0));
  const int64_t base = bound.whole(1, 10);
  const auto of_double = [&](double value) {
    if (!std::isfinite(value) || std::abs(value) >= 9.2e18) return preset;
    return Value(static_cast<int64_t>(value));
  };
  if (call.value.is_undefined()) throw TemplateError{call.value.why()};
  if (call.value.is_big()) return call.value;
  if (call.value.is_int()) return Value(call.value.as_int());
  if (call.value.is_float()) return of_double(call.value.as_double());
  if (!call.value.is_str()) return preset;
  if (base < 2 || base > 36) throw TemplateError{"int needs a base from 2 to 36"};
  std::string_view text = stripped(call.value.bytes(), {});
  if (text.starts_with('+')) text.remove_prefix(1);
  std::string digits(text);
  if (base == 16 && digits.starts_with("0x")) digits.erase(0, 2);
  if (base == 8 && digits.starts_with("0o")) digits.erase(0, 2);
  if (base == 2 && digits.starts_with("0b")) digits.erase(0, 2);
  int64_t value = 0;
  const auto end =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (end.ec == std::errc() && end.ptr == digits.data() + digits.size()) return Value(value);
  if (end.ec == std::errc::result_out_of_range)
    throw TemplateError{"a whole number goes beyond 64 bits"};
  const auto read = read_double(call.value.bytes());
  return read ? of_double(*read) : preset;
}

Value to_float(const FilterCall& call) {
  const Bound bound = call.bind({"default"});
  if (call.value.is_undefined()) throw TemplateError{call.value.why()};
  if (call.value.is_big()) return Value(std::strtod(call.value.digits().c_str(), nullptr));
  if (call.value.is_number()) return Value(call.value.as_double());
  const auto read = call.value.is_str() ? read_double(call.value.bytes()) : std::nullopt;
  return read ? Value(*read) : bound.get(0, Value(0.0));
}

Value round(const FilterCall& call) {
  const Bound bound = call.bind({"precision", "method"});
  const std::string method = bound.text(1, "common");
  const int64_t precision = bound.whole(0, 0);
  if (precision < 0 || precision > 100)
    throw TemplateError{"round needs a precision from 0 to 100"};
  if (!call.value.is_number() || call.value.is_big())
    throw TemplateError{"round needs a number, it got a value of type " + type_name(call.value)};
  if (method == "common") {
    if (call.value.is_int()) return Value(call.value.as_int());
    char buffer[512];
    std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision),
                  call.value.as_double());
    return Value(std::strtod(buffer, nullptr));
  }
  if (method != "ceil" && method != "floor")
    throw TemplateError{"round knows common, ceil and floor"};
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = call.value.as_double() * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// ---- others

Value preset(const FilterCall& call) {
  const Bound bound = call.bind({"default_value", "boolean"});
  const bool missing = call.value.is_undefined() || (bound.flag(1, false) && !truth(call.value));
  return missing ? bound.get(0, Value("")) : call.value;
}

Value tojson(const FilterCall& call) {
  const Bound bound = call.bind({"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = bound.flag(0, false), .sort_keys = bound.flag(3, false)};
  if (bound.has(1) && !bound.need(1).is_none()) {
    style.indent =
        bound.need(1).is_str()
            ? bound.need(1).bytes()
            : std::string(static_cast<size_t>(std::clamp<int64_t>(bound.whole(1, 0), 0, 100)), ' ');
  }
  if (bound.has(2) && !bound.need(2).is_none()) {
    const Values separators = items_of(bound.need(2));
    if (separators.size() != 2 || !separators[0].is_str() || !separators[1].is_str())
      throw TemplateError{"tojson needs two texts as separators"};
    style.item_separator = separators[0].bytes();
    style.key_separator = separators[1].bytes();
  }
  return Value(to_json(call.environment.budget, call.value, style));
}

Value format(const FilterCall& call) {
  if (!call.arguments.named.empty()) {
    if (!call.arguments.positional.empty())
      throw TemplateError{"format takes values with names, or without"};
    return percent_format(call.environment.budget, Value(to_str(call.value)),
                          make_dict(call.arguments.named));
  }
  return percent_format(call.environment.budget, Value(to_str(call.value)),
                        make_sequence(call.arguments.positional, Sequence::Kind::Tuple));
}

using FilterBody = std::function<Value(const FilterCall&)>;

const std::map<std::string_view, FilterBody>& filters() {
  static const std::map<std::string_view, FilterBody> table = {
      {"abs", absolute},
      {"attr",
       [](const FilterCall& call) {
         const Bound bound = call.bind({"name"});
         return call.environment.item(call.value, Value(bound.text(0, "")));
       }},
      {"batch", batch},
      {"capitalize", text_filter<to_capitalized>},
      {"center", center},
      {"count", length},
      {"d", preset},
      {"default", preset},
      {"dictsort", dictsort},
      {"e",
       [](const FilterCall& call) {
         call.bind({});
         return call.value.is_markup() ? call.value : Value(escaped(to_str(call.value)), true);
       }},
      {"escape",
       [](const FilterCall& call) {
         call.bind({});
         return call.value.is_markup() ? call.value : Value(escaped(to_str(call.value)), true);
       }},
      {"first", first},
      {"float", to_float},
      {"format", format},
      {"indent", indent},
      {"int", to_int},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list",
       [](const FilterCall& call) {
         call.bind({});
         return make_list(call.items());
       }},
      {"lower", text_filter<to_lower>},
      {"map", map},
      {"max", [](const FilterCall& call) { return extreme(call, false); }},
      {"min", [](const FilterCall& call) { return extreme(call, true); }},
      {"reject", [](const FilterCall& call) { return select(call, false, false); }},
      {"rejectattr", [](const FilterCall& call) { return select(call, true, false); }},
      {"replace", replace},
      {"reverse", reverse},
      {"round", round},
      {"safe",
       [](const FilterCall& call) {
         call.bind({});
         return Value(to_str(call.value), true);
       }},
      {"select", [](const FilterCall& call) { return select(call, false, true); }},
      {"selectattr", [](const FilterCall& call) { return select(call, true, true); }},
      {"slice", slices},
      {"sort", sort},
      {"string",
       [](const FilterCall& call) {
         call.bind({});
         return call.value.is_str() ? call.value : Value(to_str(call.value));
       }},
      {"sum", sum},
      {"title", text_filter<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"unique", unique},
      {"upper", text_filter<to_upper>},
      {"wordcount", wordcount},
  };
  return table;
}

}  // namespace

bool is_filter(std::string_view name) {
  return filters().contains(name);
}

Value apply_filter(const FilterEnvironment& environment, std::string_view name, const Value& value,
                   Arguments arguments) {
  environment.budget.step();
  const auto found = filters().find(name);
  if (found == filters().end())
    throw TemplateError{"there is no filter '" + std::string(name) + "' here"};
  return found->second(FilterCall{environment, name, value, arguments});
}

}  // namespace dsj::jinja
