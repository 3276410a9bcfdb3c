#include "common/jinja/printf.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "common/jinja/python_text.h"

namespace dsj::jinja {
namespace {

/// [[fill]align][sign][#][0][width][,][.precision][type] for both ways.
struct Spec {
  std::string fill = " ";
  char align = 0, sign = 0, type = 0;
  bool alternate = false, zero = false, comma = false;
  int width = 0;
  std::optional<int> precision;
};

[[noreturn]] void refuse(const std::string& what) {
  throw TemplateError{"format: " + what};
}

int number_at(std::string_view text, size_t& at) {
  int value = 0;
  const auto end = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (end.ec != std::errc() || value > 1 << 20)
    refuse("a width or precision is not a small number");
  at = static_cast<size_t>(end.ptr - text.data());
  return value;
}

bool is_number_at(std::string_view text, size_t at) {
  return at < text.size() && text[at] >= '0' && text[at] <= '9';
}

std::string padded(const Spec& spec, const std::string& sign, const std::string& body, char align) {
  const size_t have = code_points(sign) + code_points(body), want = static_cast<size_t>(spec.width);
  if (have >= want) return sign + body;
  const size_t missing = want - have;
  const auto fill = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  if (align == '=') return sign + fill(missing) + body;
  if (align == '<') return sign + body + fill(missing);
  if (align == '^') return fill(missing / 2) + sign + body + fill(missing - missing / 2);
  return fill(missing) + sign + body;
}

std::string with_commas(std::string digits) {
  size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  while (end > 3) digits.insert(end -= 3, ",");
  return digits;
}

std::string based(uint64_t value, int base) {
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, base);
  return std::string(buffer, end.ptr);
}

std::string sign_of(const Spec& spec, bool is_negative) {
  return is_negative ? "-" : spec.sign && spec.sign != '-' ? std::string(1, spec.sign) : "";
}

std::string whole(const Spec& spec, int64_t value) {
  const auto magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits, sign = sign_of(spec, value < 0);
  switch (spec.type) {
    case 'x':
    case 'X':
      digits = based(magnitude, 16);
      if (spec.alternate) sign += spec.type == 'x' ? "0x" : "0X";
      if (spec.type == 'X') digits = to_upper(digits);
      break;
    case 'o':
      digits = based(magnitude, 8);
      if (spec.alternate) sign += "0o";
      break;
    case 'b':
      digits = based(magnitude, 2);
      if (spec.alternate) sign += "0b";
      break;
    default:
      digits = based(magnitude, 10);
  }
  if (spec.comma) digits = with_commas(std::move(digits));
  return padded(spec, sign, digits, spec.align ? spec.align : spec.zero ? '=' : '>');
}

std::string fraction(const Spec& spec, double value) {
  char type = spec.type;
  if (type == '%') value *= 100;
  std::string digits;
  if (!type && !spec.precision) {
    digits = float_repr(value < 0 ? -value : value);
  } else {
    const std::string form = std::string("%.*") + (type == '%' || type == 'F' ? 'f'
                                                   : type                     ? type
                                                                              : 'g');
    char buffer[512];
    const int made =
        std::snprintf(buffer, sizeof buffer, form.c_str(),
                      std::min(spec.precision.value_or(6), 100), value < 0 ? -value : value);
    digits.assign(buffer, static_cast<size_t>(std::clamp(made, 0, 511)));
    if (!type && digits.find_first_of(".en") == std::string::npos) digits += ".0";
  }
  if (type == '%') digits += '%';
  if (spec.comma) digits = with_commas(std::move(digits));
  return padded(spec, sign_of(spec, std::signbit(value)), digits,
                spec.align  ? spec.align
                : spec.zero ? '='
                            : '>');
}

std::string cut(const Spec& spec, std::string text) {
  if (spec.precision) text.resize(byte_of(text, static_cast<size_t>(*spec.precision)));
  return text;
}

// ---- "%s" % values

class Percent {
 public:
  Percent(Budget& budget, const Value& format, const Value& values)
      : budget_(budget), format_(format), values_(values) {
    if (const Sequence* tuple = values.sequence(); tuple && tuple->kind == Sequence::Kind::Tuple) {
      items_ = tuple->items;
    } else {
      items_ = {values};
    }
  }

  Value run() {
    const std::string& text = format_.bytes();
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t found = std::min(text.find('%', at), text.size());
      out.append(text, at, found - at);
      at = found;
      if (at < text.size()) out += one(text, ++at);
      budget_.bytes(out.size() / 16);
    }
    if (used_ < items_.size() && !values_.dict()) refuse("more values than places in the text");
    return Value(std::move(out), format_.is_markup());
  }

 private:
  Value take() {
    if (used_ >= items_.size()) refuse("fewer values than places in the text");
    return items_[used_++];
  }

  std::string one(const std::string& text, size_t& at) {
    std::optional<Value> keyed;
    if (at < text.size() && text[at] == '(') {
      const size_t end = text.find(')', at);
      if (end == std::string::npos || !values_.dict()) refuse("%(name) needs a dict");
      const Value* found =
          values_.dict()->named(std::string_view(text).substr(at + 1, end - at - 1));
      if (!found) refuse("there is no key " + text.substr(at + 1, end - at - 1));
      keyed = *found;
      at = end + 1;
    }
    Spec spec;
    for (; at < text.size() && std::string_view("-+ #0").contains(text[at]); ++at) {
      const char c = text[at];
      if (c == '-') spec.align = '<';
      if (c == '+' || (c == ' ' && !spec.sign)) spec.sign = c;
      if (c == '#') spec.alternate = true;
      if (c == '0') spec.zero = true;
    }
    if (is_number_at(text, at)) spec.width = number_at(text, at);
    if (at < text.size() && text[at] == '.') {
      ++at;
      spec.precision = is_number_at(text, at) ? number_at(text, at) : 0;
    }
    if (at >= text.size()) refuse("% is at the end of the text");
    const char type = text[at++];
    if (type == '%') return "%";
    return filled(spec, type, keyed ? *keyed : take());
  }

  std::string filled(Spec spec, char type, const Value& value) {
    if (type == 's' || type == 'r' || type == 'a') {
      std::string shown = type == 's' ? to_str(value) : to_repr(value);
      if (format_.is_markup() && !value.is_markup()) shown = escaped(shown);
      return padded(spec, "", cut(spec, std::move(shown)), spec.align ? spec.align : '>');
    }
    if (!value.is_number() || value.is_big()) {
      refuse(std::string("%") + type + " needs a number, got " + type_name(value));
    }
    if (spec.zero && !spec.align) spec.fill = "0";
    if (type == 'd' || type == 'i' || type == 'u' || type == 'x' || type == 'X' || type == 'o') {
      if (value.is_float() && (type == 'x' || type == 'X' || type == 'o'))
        refuse(std::string("%") + type + " needs a whole number");
      spec.type = type == 'i' || type == 'u' ? 'd' : type;
      if (spec.precision) refuse("a precision for whole numbers is not built");
      return whole(spec,
                   value.is_float() ? static_cast<int64_t>(value.as_double()) : value.as_int());
    }
    if (!std::string_view("eEfFgG").contains(type))
      refuse(std::string("%") + type + " is not built");
    spec.type = type;
    return fraction(spec, value.as_double());
  }

  Budget& budget_;
  const Value& format_;
  const Value& values_;
  Values items_;
  size_t used_ = 0;
};

// ---- "{}".format(values)

Spec spec_of(std::string_view text) {
  Spec spec;
  size_t at = 0;
  constexpr std::string_view kAligns = "<>=^";
  const size_t first = text.empty() ? 0 : character_bytes(text[0]);
  if (first < text.size() && kAligns.contains(text[first])) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && kAligns.contains(text[0])) {
    spec.align = text[at++];
  }
  if (at < text.size() && std::string_view("+- ").contains(text[at])) spec.sign = text[at++];
  if (at < text.size() && text[at] == '#') {
    spec.alternate = true;
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    spec.zero = true;
    if (!spec.align) spec.fill = "0";
    ++at;
  }
  if (is_number_at(text, at)) spec.width = number_at(text, at);
  if (at < text.size() && text[at] == ',') {
    spec.comma = true;
    ++at;
  }
  if (at < text.size() && text[at] == '.' && is_number_at(text, at + 1)) {
    ++at;
    spec.precision = number_at(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) refuse("'" + std::string(text) + "' is not built");
  return spec;
}

std::string with_spec(const Value& value, std::string_view text) {
  if (text.empty()) return to_str(value);
  const Spec spec = spec_of(text);
  if (value.is_str()) {
    if (spec.type && spec.type != 's')
      refuse(std::string("'") + spec.type + "' does not fit a text");
    return padded(spec, "", cut(spec, value.bytes()), spec.align ? spec.align : '<');
  }
  if (!value.is_number() || value.is_big()) {
    refuse("'" + std::string(text) + "' does not fit a value of type " + type_name(value));
  }
  if (value.is_float() || std::string_view("eEfFgG%").contains(spec.type ? spec.type : '?')) {
    if (spec.type && !std::string_view("eEfFgG%").contains(spec.type))
      refuse(std::string("'") + spec.type + "' does not fit a fraction");
    return fraction(spec, value.as_double());
  }
  if (spec.type && !std::string_view("dxXobn").contains(spec.type))
    refuse(std::string("'") + spec.type + "' does not fit a whole number");
  if (value.is_bool() && !spec.type)
    return padded(spec, "", to_str(value), spec.align ? spec.align : '<');
  return whole(spec, value.as_int());
}

class Braces {
 public:
  Braces(Budget& budget, const Value& format, const Arguments& arguments,
         const AttributeOf& attribute)
      : budget_(budget), format_(format), arguments_(arguments), attribute_(attribute) {}

  Value run() {
    const std::string& text = format_.bytes();
    std::string out;
    for (size_t at = 0; at < text.size(); ++at) {
      const char c = text[at];
      if (c != '{' && c != '}') {
        out += c;
      } else if (at + 1 < text.size() && text[at + 1] == c) {
        out += c;
        ++at;
      } else {
        const size_t end = c == '{' ? text.find('}', at) : std::string::npos;
        if (end == std::string::npos) refuse("a brace is not closed");
        out += field(text.substr(at + 1, end - at - 1));
        budget_.bytes(out.size() / 16);
        at = end;
      }
    }
    return Value(std::move(out), format_.is_markup());
  }

 private:
  std::string field(std::string_view text) {
    const size_t colon = std::min(text.find(':'), text.size());
    const std::string_view spec = colon < text.size() ? text.substr(colon + 1) : "";
    text = text.substr(0, colon);
    char conversion = 0;
    if (const size_t mark = text.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != text.size()) refuse("a conversion is !s or !r");
      conversion = text[mark + 1];
      text = text.substr(0, mark);
    }
    if (spec.contains('{')) refuse("a field in a field is not built");
    Value value = named(text);
    if (conversion == 's') value = Value(to_str(value));
    if (conversion == 'r') value = Value(to_repr(value));
    std::string shown = with_spec(value, spec);
    return format_.is_markup() && !value.is_markup() ? escaped(shown) : shown;
  }

  /// Resolves name.attribute[key]...
  Value named(std::string_view text) {
    const size_t end = std::min(text.find_first_of(".["), text.size());
    Value value = argument(text.substr(0, end));
    text = text.substr(end);
    while (!text.empty()) {
      const bool dot = text[0] == '.';
      const size_t stop = dot ? std::min(text.find_first_of(".[", 1), text.size()) : text.find(']');
      if (stop == std::string_view::npos) refuse("a [ has no ]");
      value = attribute_(value, std::string(text.substr(1, stop - 1)));
      text = text.substr(stop + (dot ? 0 : 1));
    }
    return value;
  }

  Value argument(std::string_view name) {
    size_t place = next_;
    if (name.empty()) {
      ++next_;
    } else if (name[0] >= '0' && name[0] <= '9') {
      const auto end = std::from_chars(name.data(), name.data() + name.size(), place);
      if (end.ec != std::errc() || end.ptr != name.data() + name.size())
        refuse("a bad number of a field");
    } else {
      for (const auto& [key, value] : arguments_.named) {
        if (key == name) return value;
      }
      refuse("there is no argument '" + std::string(name) + "'");
    }
    if (place >= arguments_.positional.size()) refuse("fewer arguments than fields");
    return arguments_.positional[place];
  }

  Budget& budget_;
  const Value& format_;
  const Arguments& arguments_;
  const AttributeOf& attribute_;
  size_t next_ = 0;
};

}  // namespace

Value percent_format(Budget& budget, const Value& format, const Value& values) {
  return Percent(budget, format, values).run();
}

Value brace_format(Budget& budget, const Value& format, const Arguments& arguments,
                   const AttributeOf& attribute) {
  return Braces(budget, format, arguments, attribute).run();
}

}  // namespace dsj::jinja
