#include "common/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "common/jinja/list_filters.h"
#include "common/jinja/operators.h"
#include "common/jinja/printf.h"
#include "common/jinja/python_text.h"
#include "common/text.h"

namespace dsj::jinja {
namespace {

// ---- texts

template <std::string (*made)(std::string_view)>
Value text_filter(const FilterCall& call) {
  call.bind({});
  return call.text(made(to_str(call.value)));
}

/// As Jinja: words end at white space and after - ( { [ <.
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

const FilterTable& other_filters() {
  static const FilterTable table = {
      {"abs", absolute},
      {"attr",
       [](const FilterCall& call) {
         const Bound bound = call.bind({"name"});
         return call.environment.item(call.value, Value(bound.text(0, "")));
       }},
      {"capitalize", text_filter<to_capitalized>},
      {"center", center},
      {"d", preset},
      {"default", preset},
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
      {"float", to_float},
      {"format", format},
      {"indent", indent},
      {"int", to_int},
      {"lower", text_filter<to_lower>},
      {"replace", replace},
      {"round", round},
      {"safe",
       [](const FilterCall& call) {
         call.bind({});
         return Value(to_str(call.value), true);
       }},
      {"string",
       [](const FilterCall& call) {
         call.bind({});
         return call.value.is_str() ? call.value : Value(to_str(call.value));
       }},
      {"title", text_filter<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", text_filter<to_upper>},
      {"wordcount", wordcount},
  };
  return table;
}

/// Null if there is no such filter.
const FilterBody* find_filter(std::string_view name) {
  for (const FilterTable* table : {&list_filters(), &other_filters()}) {
    if (const auto found = table->find(name); found != table->end()) return &found->second;
  }
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) {
  return find_filter(name) != nullptr;
}

Value apply_filter(const FilterEnvironment& environment, std::string_view name, const Value& value,
                   Arguments arguments) {
  environment.budget.step();
  const FilterBody* found = find_filter(name);
  if (!found) throw TemplateError{"there is no filter '" + std::string(name) + "' here"};
  return (*found)(FilterCall{environment, name, value, arguments, apply_filter});
}

}  // namespace dsj::jinja
