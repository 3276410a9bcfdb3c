#include "common/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "common/jinja/printf.h"
#include "common/jinja/python_text.h"

namespace dsj::jinja {
namespace {

[[noreturn]] void refuse(std::string_view op, const Value& a, const Value& b) {
  for (const Value* one : {&a, &b}) {
    if (one->is_undefined()) throw TemplateError{one->why()};
  }
  throw TemplateError{type_name(a) + " " + std::string(op) + " " + type_name(b) +
                      " is not possible"};
}

int64_t checked(bool overflows, int64_t value) {
  if (overflows) throw TemplateError{"a whole number goes beyond 64 bits"};
  return value;
}

Value whole_power(int64_t base, int64_t exponent) {
  int64_t out = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) checked(__builtin_mul_overflow(out, base, &out), 0);
    if (exponent > 1) checked(__builtin_mul_overflow(base, base, &base), 0);
  }
  return Value(out);
}

Value whole(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  if (op == "+") {
    const bool over = __builtin_add_overflow(a, b, &out);
    return Value(checked(over, out));
  }
  if (op == "-") {
    const bool over = __builtin_sub_overflow(a, b, &out);
    return Value(checked(over, out));
  }
  if (op == "*") {
    const bool over = __builtin_mul_overflow(a, b, &out);
    return Value(checked(over, out));
  }
  if (op == "**") {
    return b < 0 ? Value(std::pow(static_cast<double>(a), static_cast<double>(b)))
                 : whole_power(a, b);
  }
  if (b == 0) throw TemplateError{"division by zero"};
  if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) return op == "%" ? Value(int64_t{0}) : Value(checked(a == INT64_MIN, -a));
  const bool down = a % b != 0 && (a % b < 0) != (b < 0);  // Python rounds down, C++ to zero
  return op == "//" ? Value(a / b - down) : Value(a % b + (down ? b : 0));
}

Value fraction(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "**") return Value(std::pow(a, b));
  if (b == 0) throw TemplateError{"division by zero"};
  if (op == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == "%") return Value(rest);
  return Value(std::floor((a - rest) / b + 0.5));
}

Value repeated(Budget& budget, const Value& value, int64_t count) {
  const auto times = static_cast<size_t>(std::clamp<int64_t>(count, 0, int64_t{1} << 30));
  if (value.is_str()) {
    budget.bytes(value.bytes().size() * times);
    std::string out;
    for (size_t i = 0; i < times && !value.bytes().empty(); ++i) out += value.bytes();
    return Value(std::move(out), value.is_markup());
  }
  const Sequence& sequence = *value.sequence();
  budget.step(static_cast<int64_t>(sequence.items.size() * times));
  Values items;
  for (size_t i = 0; i < times && !sequence.items.empty(); ++i)
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  return make_sequence(std::move(items), sequence.kind);
}

bool is_plain_list(const Value& value) {
  return value.sequence() && value.sequence()->kind <= Sequence::Kind::Tuple;
}

Value added_texts(Budget& budget, const Value& a, const Value& b) {
  budget.bytes(a.bytes().size() + b.bytes().size());
  if (a.is_markup() == b.is_markup()) return Value(a.bytes() + b.bytes(), a.is_markup());
  return a.is_markup() ? Value(a.bytes() + escaped(b.bytes()), true)
                       : Value(escaped(a.bytes()) + b.bytes(), true);
}

bool contains(const Value& container, const Value& item) {
  if (container.is_str()) {
    if (!item.is_str()) throw TemplateError{"'in' a text needs a text, got " + type_name(item)};
    return container.bytes().contains(item.bytes());
  }
  if (const Dict* dict = container.dict()) {
    if (item.dict() || (item.sequence() && item.sequence()->kind == Sequence::Kind::List))
      throw TemplateError{"a " + type_name(item) + " is not a key"};
    return dict->find(item) != nullptr;
  }
  const Values items = items_of(container);
  return std::ranges::any_of(items, [&](const Value& one) { return equals(one, item); });
}

/// The position of index `at`, which counts from the end if it is negative.
std::optional<size_t> place_in(size_t length, int64_t at) {
  if (at < 0) at += static_cast<int64_t>(length);
  if (at < 0 || at >= static_cast<int64_t>(length)) return std::nullopt;
  return static_cast<size_t>(at);
}

std::string character(const Text& text, size_t index) {
  const size_t begin = text.is_ascii() ? index : byte_of(text.bytes, index);
  return text.bytes.substr(begin, character_bytes(text.bytes[begin]));
}

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style)
      : budget_(budget),
        style_(style),
        comma_(style.item_separator.value_or(style.indent ? "," : ", ")),
        colon_(style.key_separator.value_or(": ")) {}

  void write(const Value& value, int level) {
    budget_.step();
    if (value.is_none()) {
      out += "null";
    } else if (value.is_bool()) {
      out += value.as_int() ? "true" : "false";
    } else if (value.is_int() || value.is_big()) {
      out += to_repr(value);
    } else if (value.is_float()) {
      number(value.as_double());
    } else if (value.is_str()) {
      text(value.bytes());
    } else if (is_plain_list(value)) {
      list(value.sequence()->items, level);
    } else if (const Dict* dict = value.dict()) {
      object(*dict, level);
    } else if (value.is_undefined()) {
      throw TemplateError{value.why() + ", and tojson cannot write it"};
    } else {
      throw TemplateError{"tojson cannot write a value of type " + type_name(value)};
    }
  }
  std::string out;

 private:
  void line(int level) {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < level; ++i) out += *style_.indent;
    budget_.bytes(style_.indent->size() * static_cast<size_t>(level));
  }
  void number(double value) {
    if (std::isnan(value)) {
      out += "NaN";
    } else if (std::isinf(value)) {
      out += value < 0 ? "-Infinity" : "Infinity";
    } else {
      out += float_repr(value);
    }
  }
  void list(const Values& items, int level) {
    if (items.empty()) return void(out += "[]");
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += comma_;
      line(level + 1);
      write(items[i], level + 1);
    }
    line(level);
    out += ']';
  }
  void object(const Dict& dict, int level) {
    if (dict.entries().empty()) return void(out += "{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::ranges::stable_sort(
          entries, [](const auto* a, const auto* b) { return compare(a->first, b->first) < 0; });
    }
    out += '{';
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      if (!first) out += comma_;
      first = false;
      line(level + 1);
      key(entry->first);
      out += colon_;
      write(entry->second, level + 1);
    }
    line(level);
    out += '}';
  }
  void key(const Value& key) {
    if (key.is_str()) return text(key.bytes());
    if (!key.is_none() && !key.is_number()) {
      throw TemplateError{"tojson cannot write a key of type " + type_name(key)};
    }
    out += '"';
    write(key, 0);
    out += '"';
  }
  void unit(char32_t value) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[value >> shift & 15];
  }
  void text(const std::string& bytes) {
    budget_.bytes(bytes.size());
    constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
    out += '"';
    for (size_t at = 0; at < bytes.size();) {
      const char32_t c = next_code_point(bytes, at);
      const size_t named = c < 0x80 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
      if (named != std::string_view::npos) {
        out += '\\';
        out += kNames[named];
      } else if (c < 0x20 || (style_.ensure_ascii && c >= 0x7f && c < 0x10000 && c != 0x7f)) {
        unit(c);
      } else if (style_.ensure_ascii && c >= 0x10000) {
        unit(0xd800 + ((c - 0x10000) >> 10));
        unit(0xdc00 + ((c - 0x10000) & 0x3ff));
      } else {
        append_code_point(c, out);
      }
    }
    out += '"';
  }
  Budget& budget_;
  const JsonStyle& style_;
  const std::string comma_, colon_;
};

}  // namespace

Value binary(Budget& budget, std::string_view op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number() && !a.is_big() && !b.is_big()) {
    if (a.is_int() && b.is_int()) return whole(op, a.as_int(), b.as_int());
    return fraction(op, a.as_double(), b.as_double());
  }
  if (op == "+") {
    if (a.is_str() && b.is_str()) return added_texts(budget, a, b);
    if (is_plain_list(a) && is_plain_list(b) && a.sequence()->kind == b.sequence()->kind) {
      budget.step(std::ssize(a.sequence()->items) + std::ssize(b.sequence()->items));
      Values items = a.sequence()->items;
      items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
      return make_sequence(std::move(items), a.sequence()->kind);
    }
  }
  if (op == "*") {
    if ((a.is_str() || is_plain_list(a)) && b.is_int()) return repeated(budget, a, b.as_int());
    if (a.is_int() && (b.is_str() || is_plain_list(b))) return repeated(budget, b, a.as_int());
  }
  if (op == "%" && a.is_str()) return percent_format(budget, a, b);
  refuse(op, a, b);
}

Value negative(const Value& value) {
  if (value.is_int()) return whole("-", 0, value.as_int());
  if (value.is_float()) return Value(-value.as_double());
  if (value.is_undefined()) throw TemplateError{value.why()};
  throw TemplateError{"-" + type_name(value) + " is not possible"};
}

bool relation(std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equals(a, b);
  if (op == "!=") return !equals(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  const int order = compare(a, b);
  return op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
}

Value no_element(const Value& object, const Value& place) {
  const std::string owner = object.is_none() ? "None" : "'" + type_name(object) + " object'";
  return Value::undefined(owner + (place.is_str() ? " has no attribute " : " has no element ") +
                          to_repr(place));
}

Value subscript(const Value& object, const Value& place) {
  if (object.is_undefined()) throw TemplateError{object.why()};
  if (const Dict* dict = object.dict()) {
    const Value* found = dict->find(place);
    return found ? *found : no_element(object, place);
  }
  if (!place.is_int()) return no_element(object, place);
  if (object.is_str()) {
    const auto at = place_in(object.text().length, place.as_int());
    return at ? Value(character(object.text(), *at), object.is_markup())
              : no_element(object, place);
  }
  const Sequence* sequence = object.sequence();
  if (!sequence || !sequence->has_places()) return no_element(object, place);
  const auto at = place_in(sequence->items.size(), place.as_int());
  return at ? sequence->items[*at] : no_element(object, place);
}

Value slice(const Value& object, std::optional<int64_t> start, std::optional<int64_t> stop,
            std::optional<int64_t> step) {
  if (object.is_undefined()) throw TemplateError{object.why()};
  const Sequence* sequence = object.sequence();
  if (!object.is_str() && !(sequence && sequence->has_places())) {
    throw TemplateError{"a value of type " + type_name(object) + " cannot be sliced"};
  }
  const int64_t by = step.value_or(1);
  if (by == 0) throw TemplateError{"a slice with step 0"};
  const auto length =
      static_cast<int64_t>(object.is_str() ? object.text().length : sequence->items.size());
  const auto bound = [&](std::optional<int64_t> at, int64_t preset) {
    if (!at) return preset;
    if (*at < 0) return std::max<int64_t>(*at + length, by < 0 ? -1 : 0);
    return std::min(*at, by < 0 ? length - 1 : length);
  };
  const int64_t first = bound(start, by < 0 ? length - 1 : 0),
                end = bound(stop, by < 0 ? -1 : length);
  if (object.is_str()) {
    const Text& text = object.text();
    if (by == 1) {
      if (first >= end) return Value(std::string(), object.is_markup());
      const auto place = [&](int64_t i) {
        return text.is_ascii() ? static_cast<size_t>(i)
                               : byte_of(text.bytes, static_cast<size_t>(i));
      };
      const size_t begin = place(first);
      return Value(text.bytes.substr(begin, place(end) - begin), object.is_markup());
    }
    const Values characters = items_of(object);
    std::string out;
    for (int64_t i = first; by < 0 ? i > end : i < end; i += by)
      out += characters[static_cast<size_t>(i)].bytes();
    return Value(std::move(out), object.is_markup());
  }
  Values items;
  for (int64_t i = first; by < 0 ? i > end : i < end;) {
    items.push_back(sequence->items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return make_sequence(std::move(items), sequence->kind);
}

std::string to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonWriter writer(budget, style);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace dsj::jinja
