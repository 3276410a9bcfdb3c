#include "common/jinja/methods.h"

#include <algorithm>
#include <functional>
#include <map>

#include "common/jinja/python_text.h"

namespace dsj::jinja {
namespace {

constexpr std::string_view kOtherTextMethods[] = {
    "casefold",     "encode",    "expandtabs",  "format_map", "isascii",   "isdecimal",
    "isidentifier", "isnumeric", "isprintable", "istitle",    "maketrans", "translate"};
constexpr std::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

struct MethodCall {
  Budget& budget;
  const Value& self;
  std::string_view name;
  Arguments& arguments;
  const AttributeOf& attribute;

  const std::string& bytes() const { return self.bytes(); }
  Value text(std::string made) const {
    budget.bytes(made.size());
    return Value(std::move(made), self.is_markup());
  }
  Bound bind(std::initializer_list<std::string_view> names) const {
    return Bound(name, std::move(arguments), names);
  }
};

const std::string& needed_text(const Bound& bound, size_t i, std::string_view name) {
  if (!bound.need(i).is_str()) {
    throw TemplateError{std::string(name) + " needs a text, it got a value of type " +
                        type_name(bound.need(i))};
  }
  return bound.need(i).bytes();
}

/// An argument of strip and split. None means that it is not given.
std::optional<std::string_view> optional_text(const Bound& bound, size_t i, std::string_view name) {
  if (!bound.has(i) || bound.need(i).is_none()) return std::nullopt;
  return needed_text(bound, i, name);
}

Value strip(const MethodCall& call, Sides sides) {
  const Bound bound = call.bind({"chars"});
  return call.text(std::string(stripped(call.bytes(), sides, optional_text(bound, 0, call.name))));
}

Value splitting(const MethodCall& call, bool from_right) {
  const Bound bound = call.bind({"sep", "maxsplit"});
  const auto separator = optional_text(bound, 0, call.name);
  if (separator && separator->empty()) throw TemplateError{"split with an empty separator"};
  Values parts;
  call.budget.bytes(call.bytes().size());
  for (const auto part : split(call.bytes(), separator, bound.whole(1, -1), from_right))
    parts.push_back(call.text(std::string(part)));
  return make_list(std::move(parts));
}

/// startswith, endswith: one text or a tuple of texts.
Value affix(const MethodCall& call, bool at_end) {
  const Bound bound = call.bind({"prefix", "start", "end"});
  if (bound.has(1) || bound.has(2))
    throw TemplateError{std::string(call.name) + " with a place is not built"};
  const auto fits = [&](const Value& one) {
    if (!one.is_str())
      throw TemplateError{std::string(call.name) + " needs a text, it got a value of type " +
                          type_name(one)};
    return at_end ? call.bytes().ends_with(one.bytes()) : call.bytes().starts_with(one.bytes());
  };
  const Sequence* several = bound.need(0).sequence();
  if (several && several->kind == Sequence::Kind::Tuple)
    return Value(std::ranges::any_of(several->items, fits));
  return Value(fits(bound.need(0)));
}

/// find, rfind, index, rindex: positions in code points.
Value finding(const MethodCall& call, bool last, bool needed) {
  const Bound bound = call.bind({"sub", "start"});
  const std::string& part = needed_text(bound, 0, call.name);
  int64_t start = bound.whole(1, 0);
  if (start < 0)
    start = std::max<int64_t>(0, start + static_cast<int64_t>(call.self.text().length));
  const size_t from = byte_of(call.bytes(), static_cast<size_t>(start));
  size_t at = last ? call.bytes().rfind(part) : call.bytes().find(part, from);
  if (at != std::string::npos && at < from) at = std::string::npos;
  if (start > static_cast<int64_t>(call.self.text().length)) at = std::string::npos;
  if (at != std::string::npos)
    return Value(code_points(std::string_view(call.bytes()).substr(0, at)));
  if (needed) throw TemplateError{"'" + part + "' is not in the text"};
  return Value(-1);
}

Value joining(const MethodCall& call) {
  const Bound bound = call.bind({"iterable"});
  std::string out;
  bool first = true;
  for (const Value& item : items_of(bound.need(0))) {
    if (!item.is_str())
      throw TemplateError{"join needs texts, it got a value of type " + type_name(item)};
    if (!first) out += call.bytes();
    first = false;
    out += call.self.is_markup() && !item.is_markup() ? escaped(item.bytes()) : item.bytes();
    call.budget.bytes(item.bytes().size() + call.bytes().size());
  }
  return call.text(std::move(out));
}

Value partitioned(const MethodCall& call, bool last) {
  const Bound bound = call.bind({"sep"});
  const std::string& separator = needed_text(bound, 0, call.name);
  if (separator.empty()) throw TemplateError{std::string(call.name) + " with an empty separator"};
  const size_t at = last ? call.bytes().rfind(separator) : call.bytes().find(separator);
  Values parts;
  if (at == std::string::npos) {
    parts = {call.self, call.text(""), call.text("")};
    if (last) std::ranges::swap(parts[0], parts[2]);
  } else {
    parts = {call.text(call.bytes().substr(0, at)), call.text(separator),
             call.text(call.bytes().substr(at + separator.size()))};
  }
  return make_sequence(std::move(parts), Sequence::Kind::Tuple);
}

enum class Side { Left, Right, Center };
Value justified(const MethodCall& call, Side side) {
  const Bound bound = call.bind({"width", "fillchar"});
  const int64_t have = static_cast<int64_t>(call.self.text().length), want = bound.whole(0, 0);
  const std::string fill = bound.text(1, " ");
  if (code_points(fill) != 1)
    throw TemplateError{std::string(call.name) + " needs one character to fill with"};
  if (want <= have) return call.self;
  call.budget.bytes(static_cast<size_t>(want - have) * fill.size());
  const int64_t missing = want - have;
  const int64_t left = side == Side::Left    ? 0
                       : side == Side::Right ? missing
                                             : missing / 2 + (missing & want & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += call.bytes();
  for (int64_t i = left; i < missing; ++i) out += fill;
  return call.text(std::move(out));
}

/// is...(): true for all characters, and there is at least one.
Value all_of(const MethodCall& call, bool (*fits)(char32_t)) {
  call.bind({});
  for (size_t at = 0; at < call.bytes().size();) {
    if (!fits(next_code_point(call.bytes(), at))) return Value(false);
  }
  return Value(!call.bytes().empty());
}

/// isupper, islower: at least one letter of this case, and none of the other.
Value all_cased(const MethodCall& call, bool (*fits)(char32_t), bool (*other)(char32_t)) {
  call.bind({});
  bool found = false;
  for (size_t at = 0; at < call.bytes().size();) {
    const char32_t c = next_code_point(call.bytes(), at);
    if (other(c)) return Value(false);
    found = found || fits(c);
  }
  return Value(found);
}

Value replacing(const MethodCall& call) {
  const Bound bound = call.bind({"old", "new", "count"});
  const std::string& from = needed_text(bound, 0, call.name);
  std::string to = needed_text(bound, 1, call.name);
  if (call.self.is_markup() && !bound.need(1).is_markup()) to = escaped(to);
  const auto found = static_cast<size_t>(occurrences(call.bytes(), from));
  call.budget.bytes(call.bytes().size() + found * to.size());
  return call.text(replaced(call.bytes(), from, to, bound.whole(2, -1)));
}

Value without_affix(const MethodCall& call, bool at_end) {
  const Bound bound = call.bind({"affix"});
  const std::string& part = needed_text(bound, 0, call.name);
  std::string_view text = call.bytes();
  if (at_end && text.ends_with(part)) text.remove_suffix(part.size());
  if (!at_end && text.starts_with(part)) text.remove_prefix(part.size());
  return call.text(std::string(text));
}

Value lines(const MethodCall& call) {
  const Bound bound = call.bind({"keepends"});
  Values parts;
  for (const auto line : split_lines(call.bytes(), bound.flag(0, false)))
    parts.push_back(call.text(std::string(line)));
  return make_list(std::move(parts));
}

Value zero_filled(const MethodCall& call) {
  const Bound bound = call.bind({"width"});
  const int64_t missing = bound.whole(0, 0) - static_cast<int64_t>(call.self.text().length);
  if (missing <= 0) return call.self;
  call.budget.bytes(static_cast<size_t>(missing));
  const size_t sign = call.bytes().starts_with('-') || call.bytes().starts_with('+') ? 1 : 0;
  std::string out = call.bytes();
  return call.text(out.insert(sign, static_cast<size_t>(missing), '0'));
}

template <typename Made>
Value text_method(const MethodCall& call, Made made) {
  call.bind({});
  return call.text(made(call.bytes()));
}

using MethodBody = std::function<Value(const MethodCall&)>;

const std::map<std::string_view, MethodBody>& text_methods() {
  static const std::map<std::string_view, MethodBody> table = {
      {"capitalize", [](const MethodCall& c) { return text_method(c, to_capitalized); }},
      {"center", [](const MethodCall& c) { return justified(c, Side::Center); }},
      {"count",
       [](const MethodCall& c) {
         const Bound bound = c.bind({"sub"});
         return Value(occurrences(c.bytes(), needed_text(bound, 0, c.name)));
       }},
      {"endswith", [](const MethodCall& c) { return affix(c, true); }},
      {"find", [](const MethodCall& c) { return finding(c, false, false); }},
      {"format",
       [](const MethodCall& c) {
         return brace_format(c.budget, c.self, c.arguments, c.attribute);
       }},
      {"index", [](const MethodCall& c) { return finding(c, false, true); }},
      {"isalnum",
       [](const MethodCall& c) {
         return all_of(c, [](char32_t one) { return is_alpha(one) || is_digit(one); });
       }},
      {"isalpha", [](const MethodCall& c) { return all_of(c, is_alpha); }},
      {"isdigit", [](const MethodCall& c) { return all_of(c, is_digit); }},
      {"islower", [](const MethodCall& c) { return all_cased(c, is_lower, is_upper); }},
      {"isspace", [](const MethodCall& c) { return all_of(c, is_space); }},
      {"isupper", [](const MethodCall& c) { return all_cased(c, is_upper, is_lower); }},
      {"join", joining},
      {"ljust", [](const MethodCall& c) { return justified(c, Side::Left); }},
      {"lower", [](const MethodCall& c) { return text_method(c, to_lower); }},
      {"lstrip", [](const MethodCall& c) { return strip(c, {.right = false}); }},
      {"partition", [](const MethodCall& c) { return partitioned(c, false); }},
      {"removeprefix", [](const MethodCall& c) { return without_affix(c, false); }},
      {"removesuffix", [](const MethodCall& c) { return without_affix(c, true); }},
      {"replace", replacing},
      {"rfind", [](const MethodCall& c) { return finding(c, true, false); }},
      {"rindex", [](const MethodCall& c) { return finding(c, true, true); }},
      {"rjust", [](const MethodCall& c) { return justified(c, Side::Right); }},
      {"rpartition", [](const MethodCall& c) { return partitioned(c, true); }},
      {"rsplit", [](const MethodCall& c) { return splitting(c, true); }},
      {"rstrip", [](const MethodCall& c) { return strip(c, {.left = false}); }},
      {"split", [](const MethodCall& c) { return splitting(c, false); }},
      {"splitlines", lines},
      {"startswith", [](const MethodCall& c) { return affix(c, false); }},
      {"strip", [](const MethodCall& c) { return strip(c, {}); }},
      {"swapcase", [](const MethodCall& c) { return text_method(c, to_swapped); }},
      {"title", [](const MethodCall& c) { return text_method(c, to_title); }},
      {"upper", [](const MethodCall& c) { return text_method(c, to_upper); }},
      {"zfill", zero_filled},
  };
  return table;
}

Value view(const MethodCall& call, Sequence::Kind kind) {
  call.bind({});
  Values items;
  for (const auto& [key, value] : call.self.dict()->entries()) {
    items.push_back(kind == Sequence::Kind::Keys ? key
                    : kind == Sequence::Kind::Values
                        ? value
                        : make_sequence({key, value}, Sequence::Kind::Tuple));
  }
  call.budget.step(std::ssize(items));
  return make_sequence(std::move(items), kind);
}

const std::map<std::string_view, MethodBody>& dict_methods() {
  static const std::map<std::string_view, MethodBody> table = {
      {"copy", [](const MethodCall& c) { return c.self; }},
      {"get",
       [](const MethodCall& c) {
         const Bound bound = c.bind({"key", "default"});
         const Value* found = c.self.dict()->find(bound.need(0));
         return found ? *found : bound.get(1, Value::none());
       }},
      {"items", [](const MethodCall& c) { return view(c, Sequence::Kind::Items); }},
      {"keys", [](const MethodCall& c) { return view(c, Sequence::Kind::Keys); }},
      {"values", [](const MethodCall& c) { return view(c, Sequence::Kind::Values); }},
  };
  return table;
}

const std::map<std::string_view, MethodBody>& list_methods() {
  static const std::map<std::string_view, MethodBody> table = {
      {"copy", [](const MethodCall& c) { return c.self; }},
      {"count",
       [](const MethodCall& c) {
         const Bound bound = c.bind({"value"});
         return Value(static_cast<int64_t>(
             std::ranges::count_if(c.self.sequence()->items,
                                   [&](const Value& one) { return equals(one, bound.need(0)); })));
       }},
      {"index",
       [](const MethodCall& c) {
         const Bound bound = c.bind({"value"});
         const auto& items = c.self.sequence()->items;
         const auto at = std::ranges::find_if(
             items, [&](const Value& one) { return equals(one, bound.need(0)); });
         if (at == items.end()) throw TemplateError{to_repr(bound.need(0)) + " is not in the list"};
         return Value(static_cast<int64_t>(at - items.begin()));
       }},
  };
  return table;
}

}  // namespace

Method method_of(const Value& object, std::string_view name) {
  const auto is_in = [name](const auto& names) {
    return std::ranges::find(names, name) != std::end(names);
  };
  if (object.is_str()) {
    if (text_methods().contains(name)) return Method::Built;
    return is_in(kOtherTextMethods) ? Method::NotBuilt : Method::None;
  }
  if (object.dict()) {
    if (dict_methods().contains(name)) return Method::Built;
    if (name == "fromkeys") return Method::NotBuilt;
    return is_in(kDictChanges) ? Method::Forbidden : Method::None;
  }
  const Sequence* sequence = object.sequence();
  if (!sequence || !sequence->has_places()) return Method::None;
  if (sequence->kind == Sequence::Kind::List && is_in(kListChanges)) return Method::Forbidden;
  if (name == "copy" && sequence->kind != Sequence::Kind::List) return Method::None;
  return list_methods().contains(name) ? Method::Built : Method::None;
}

Value call_method(Budget& budget, const Value& object, std::string_view name, Arguments arguments,
                  const AttributeOf& attribute) {
  const auto& table = object.is_str() ? text_methods()
                      : object.dict() ? dict_methods()
                                      : list_methods();
  return table.find(name)->second(MethodCall{budget, object, name, arguments, attribute});
}

}  // namespace dsj::jinja
