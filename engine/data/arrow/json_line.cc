#include "engine/data/arrow/json_line.h"

#include <arrow/extension_type.h>
#include <arrow/util/float16.h>
#include <arrow/util/utf8.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <set>
#include <string_view>
#include <utility>

namespace dsj::data {
namespace {

using arrow::Array;
using arrow::Type;

constexpr int kNestingMax = 64;

// ---- supported types

std::optional<std::string> refused_type(const std::string& name, const arrow::DataType& type,
                                        int depth);

std::optional<std::string> refused_fields(const std::string& prefix,
                                          const arrow::FieldVector& fields, int depth) {
  std::set<std::string_view> seen;
  for (const auto& field : fields) {
    if (!arrow::util::ValidateUTF8(field->name())) return "the name of a column is not UTF-8";
    if (!seen.insert(field->name()).second)
      return "two columns are called '" + prefix + field->name() + "'";
    if (auto why = refused_type(prefix + field->name(), *field->type(), depth)) return why;
  }
  return std::nullopt;
}

std::optional<std::string> refused_type(const std::string& name, const arrow::DataType& type,
                                        int depth) {
  if (depth > kNestingMax) return "column '" + name + "' is nested too deep";
  switch (type.id()) {
    case Type::DURATION:
    case Type::INTERVAL_MONTHS:
    case Type::INTERVAL_DAY_TIME:
    case Type::INTERVAL_MONTH_DAY_NANO:
    case Type::SPARSE_UNION:
    case Type::DENSE_UNION:
    case Type::RUN_END_ENCODED:
      return "column '" + name + "' is of type " + type.ToString() +
             ", which rows of text cannot hold";
    case Type::DICTIONARY:
      return refused_type(name, *static_cast<const arrow::DictionaryType&>(type).value_type(),
                          depth + 1);
    case Type::EXTENSION:
      return refused_type(name, *static_cast<const arrow::ExtensionType&>(type).storage_type(),
                          depth + 1);
    case Type::STRUCT:
      return refused_fields(name + ".", type.fields(), depth + 1);
    default:
      for (const auto& field : type.fields())  // for lists and maps
        if (auto why = refused_type(name, *field->type(), depth + 1)) return why;
      return type.id() < Type::MAX_ID
                 ? std::nullopt
                 : std::optional("column '" + name + "' is of an unknown type");
  }
}

// ---- leaves

void append_text(std::string_view text, std::string& out) {
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      out += escaped;
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

void append_bytes(std::string_view bytes, std::string& out) {
  if (arrow::util::ValidateUTF8(bytes)) return append_text(bytes, out);
  out += "{\"bytes\": " + std::to_string(bytes.size()) + "}";
}

/// Writes JSON in one line: in valid JSON a line end is only between tokens.
void append_json(std::string_view json, std::string& out) {
  for (const char c : json) out.push_back(c == '\n' || c == '\r' ? ' ' : c);
}

void append_number(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  out += text;
  if (text.find_first_of(".e") == text.npos) out += ".0";  // else it would be read as an integer
}

template <typename... Args>
void append_format(std::string& out, const char* format, Args... args) {
  char text[64];
  std::snprintf(text, sizeof text, format, args...);
  out += text;
}

/// "2024-01-31". Years outside -32767 to 32767 are written as days since 1970.
void append_date(int64_t days, std::string& out) {
  namespace ch = std::chrono;
  constexpr int64_t kDaysMax = 11'000'000;
  if (days < -kDaysMax || days > kDaysMax) return append_format(out, "%lld days", (long long)days);
  const ch::year_month_day date{ch::sys_days{ch::days{days}}};
  append_format(out, "%04d-%02u-%02u", int(date.year()), unsigned(date.month()),
                unsigned(date.day()));
}

int64_t ticks_per_second(arrow::TimeUnit::type unit) {
  switch (unit) {
    case arrow::TimeUnit::SECOND:
      return 1;
    case arrow::TimeUnit::MILLI:
      return 1'000;
    case arrow::TimeUnit::MICRO:
      return 1'000'000;
    case arrow::TimeUnit::NANO:
      break;
  }
  return 1'000'000'000;
}

/// "14:03:07", with a fraction if it is not 0: six digits, or nine if needed.
void append_time(int64_t ticks, int64_t per_second, std::string& out) {
  const int64_t seconds = ticks / per_second;
  const int64_t nanos = ticks % per_second * (1'000'000'000 / per_second);
  append_format(out, "%02lld:%02lld:%02lld", (long long)(seconds / 3600),
                (long long)(seconds / 60 % 60), (long long)(seconds % 60));
  if (nanos % 1000 != 0)
    append_format(out, ".%09lld", (long long)nanos);
  else if (nanos != 0)
    append_format(out, ".%06lld", (long long)(nanos / 1000));
}

int64_t floor_div(int64_t value, int64_t by) {
  return value / by - (value % by < 0 ? 1 : 0);
}

void append_timestamp(int64_t ticks, const arrow::TimestampType& type, std::string& out) {
  const int64_t per_second = ticks_per_second(type.unit()), per_day = per_second * 86'400;
  const int64_t days = floor_div(ticks, per_day);
  out.push_back('"');
  append_date(days, out);
  out.push_back(' ');
  append_time(ticks - days * per_day, per_second, out);
  out += type.timezone().empty() ? "\"" : "+00:00\"";
}

// ---- nested

void append_value(const Array& array, int64_t i, std::string& out);

template <typename List>
void append_list(const Array& array, int64_t i, std::string& out) {
  const auto& list = static_cast<const List&>(array);
  const int64_t first = list.value_offset(i), count = list.value_length(i);
  out.push_back('[');
  for (int64_t at = first; at < first + count; ++at) {
    if (at > first) out += ", ";
    append_value(*list.values(), at, out);
  }
  out.push_back(']');
}

void append_map(const Array& array, int64_t i, std::string& out) {
  const auto& map = static_cast<const arrow::MapArray&>(array);
  const int64_t first = map.value_offset(i), count = map.value_length(i);
  out.push_back('[');
  for (int64_t at = first; at < first + count; ++at) {
    out += at > first ? ", [" : "[";
    append_value(*map.keys(), at, out);
    out += ", ";
    append_value(*map.items(), at, out);
    out.push_back(']');
  }
  out.push_back(']');
}

/// The number of structs around a value: append_struct's place in the row, which the table of
/// functions below does not pass on.
thread_local int structs_around = 0;

/// Sets it for a scope.
class InStructs {
 public:
  explicit InStructs(int count) : before_(std::exchange(structs_around, count)) {}
  ~InStructs() { structs_around = before_; }
  InStructs(const InStructs&) = delete;
  InStructs& operator=(const InStructs&) = delete;

 private:
  int before_;
};

/// A struct inside another one is written without its null fields: Arrow gives all values of a column
/// the fields of any, so that a tool call would show the arguments of other tools.
void append_struct(const Array& array, int64_t i, std::string& out) {
  const auto& object = static_cast<const arrow::StructArray&>(array);
  const bool inner = structs_around > 0;
  const InStructs inside(structs_around + 1);
  out.push_back('{');
  bool first = true;
  for (int field = 0; field < object.num_fields(); ++field) {
    if (inner && object.field(field)->IsNull(i)) continue;
    if (!std::exchange(first, false)) out += ", ";
    append_text(object.struct_type()->field(field)->name(), out);
    out += ": ";
    append_value(*object.field(field), i, out);
  }
  out.push_back('}');
}

/// The text of an arrow.json value, whose storage is any of the string types.
std::string_view text_at(const Array& array, int64_t i) {
  switch (array.type_id()) {
    case Type::STRING:
    case Type::BINARY:
      return static_cast<const arrow::BinaryArray&>(array).GetView(i);
    case Type::LARGE_STRING:
    case Type::LARGE_BINARY:
      return static_cast<const arrow::LargeBinaryArray&>(array).GetView(i);
    case Type::STRING_VIEW:
    case Type::BINARY_VIEW:
      return static_cast<const arrow::BinaryViewArray&>(array).GetView(i);
    default:
      return static_cast<const arrow::FixedSizeBinaryArray&>(array).GetView(i);
  }
}

void append_extension(const Array& array, int64_t i, std::string& out) {
  const auto& extension = static_cast<const arrow::ExtensionArray&>(array);
  const Array& storage = *extension.storage();
  const std::string name = extension.extension_type()->extension_name();
  if (name == "arrow.json" && storage.IsValid(i)) return append_json(text_at(storage, i), out);
  if (name == "arrow.uuid" && storage.IsValid(i)) {
    const std::string_view id = text_at(storage, i);
    out.push_back('"');
    for (size_t at = 0; at < id.size(); ++at) {
      if (at == 4 || at == 6 || at == 8 || at == 10) out.push_back('-');
      append_format(out, "%02x", static_cast<unsigned>(static_cast<unsigned char>(id[at])));
    }
    out.push_back('"');
    return;
  }
  append_value(storage, i, out);
}

template <typename T>
auto value_at(const Array& array, int64_t i) {
  return static_cast<const typename arrow::TypeTraits<T>::ArrayType&>(array).Value(i);
}

void append_moment(const Array& array, int64_t i, std::string& out) {
  const auto time = [&](int64_t ticks, arrow::TimeUnit::type unit) {
    out.push_back('"');
    append_time(ticks, ticks_per_second(unit), out);
    out.push_back('"');
  };
  const auto date = [&](int64_t days) {
    out.push_back('"');
    append_date(days, out);
    out.push_back('"');
  };
  const arrow::DataType& type = *array.type();
  switch (type.id()) {
    case Type::DATE32:
      return date(value_at<arrow::Date32Type>(array, i));
    case Type::DATE64:
      return date(floor_div(value_at<arrow::Date64Type>(array, i), 86'400'000));
    case Type::TIME32:
      return time(value_at<arrow::Time32Type>(array, i),
                  static_cast<const arrow::Time32Type&>(type).unit());
    case Type::TIME64:
      return time(value_at<arrow::Time64Type>(array, i),
                  static_cast<const arrow::Time64Type&>(type).unit());
    default:
      return append_timestamp(value_at<arrow::TimestampType>(array, i),
                              static_cast<const arrow::TimestampType&>(type), out);
  }
}

template <typename T>
void append_integer(const Array& array, int64_t i, std::string& out) {
  out += std::to_string(value_at<T>(array, i));
}

template <typename T>
void append_real(const Array& array, int64_t i, std::string& out) {
  append_number(value_at<T>(array, i), out);
}

template <typename Decimals>
void append_decimal(const Array& array, int64_t i, std::string& out) {
  out += static_cast<const Decimals&>(array).FormatValue(i);
}

template <void (*append)(std::string_view, std::string&)>
void append_view(const Array& array, int64_t i, std::string& out) {
  append(text_at(array, i), out);
}

using Append = void (*)(const Array&, int64_t, std::string&);

/// Indexed by the type's id.
const auto kAppend = [] {
  std::array<Append, Type::MAX_ID> table{};
  const auto set = [&](Append append, std::initializer_list<Type::type> types) {
    for (const Type::type type : types) table[type] = append;
  };
  set([](const Array& array, int64_t i,
         std::string& out) { out += value_at<arrow::BooleanType>(array, i) ? "true" : "false"; },
      {Type::BOOL});
  set(append_integer<arrow::Int8Type>, {Type::INT8});
  set(append_integer<arrow::Int16Type>, {Type::INT16});
  set(append_integer<arrow::Int32Type>, {Type::INT32});
  set(append_integer<arrow::Int64Type>, {Type::INT64});
  set(append_integer<arrow::UInt8Type>, {Type::UINT8});
  set(append_integer<arrow::UInt16Type>, {Type::UINT16});
  set(append_integer<arrow::UInt32Type>, {Type::UINT32});
  set(append_integer<arrow::UInt64Type>, {Type::UINT64});
  set(
      [](const Array& array, int64_t i, std::string& out) {
        const auto bits = value_at<arrow::HalfFloatType>(array, i);
        append_number(arrow::util::Float16::FromBits(bits).ToDouble(), out);
      },
      {Type::HALF_FLOAT});
  set(append_real<arrow::FloatType>, {Type::FLOAT});
  set(append_real<arrow::DoubleType>, {Type::DOUBLE});
  set(append_decimal<arrow::Decimal32Array>, {Type::DECIMAL32});
  set(append_decimal<arrow::Decimal64Array>, {Type::DECIMAL64});
  set(append_decimal<arrow::Decimal128Array>, {Type::DECIMAL128});
  set(append_decimal<arrow::Decimal256Array>, {Type::DECIMAL256});
  set(append_view<append_text>, {Type::STRING, Type::LARGE_STRING, Type::STRING_VIEW});
  set(append_view<append_bytes>,
      {Type::BINARY, Type::LARGE_BINARY, Type::BINARY_VIEW, Type::FIXED_SIZE_BINARY});
  set(append_moment, {Type::DATE32, Type::DATE64, Type::TIME32, Type::TIME64, Type::TIMESTAMP});
  set(append_list<arrow::ListArray>, {Type::LIST});
  set(append_list<arrow::LargeListArray>, {Type::LARGE_LIST});
  set(append_list<arrow::FixedSizeListArray>, {Type::FIXED_SIZE_LIST});
  set(append_list<arrow::ListViewArray>, {Type::LIST_VIEW});
  set(append_list<arrow::LargeListViewArray>, {Type::LARGE_LIST_VIEW});
  set(append_map, {Type::MAP});
  set(append_struct, {Type::STRUCT});
  set(
      [](const Array& array, int64_t i, std::string& out) {
        const auto& words = static_cast<const arrow::DictionaryArray&>(array);
        append_value(*words.dictionary(), words.GetValueIndex(i), out);
      },
      {Type::DICTIONARY});
  set(append_extension, {Type::EXTENSION});
  return table;
}();

void append_value(const Array& array, int64_t i, std::string& out) {
  if (array.IsNull(i)) {
    out += "null";
  } else {
    kAppend[array.type_id()](array, i, out);  // refused_column() refuses all other types
  }
}

}  // namespace

std::optional<std::string> refused_column(const arrow::Schema& schema) {
  return refused_fields("", schema.fields(), 0);
}

void append_line(const arrow::RecordBatch& batch, int64_t row, std::string& out) {
  out.push_back('{');
  for (int column = 0; column < batch.num_columns(); ++column) {
    if (column > 0) out += ", ";
    const std::string& name = batch.schema()->field(column)->name();
    const InStructs around(name == "tools" ? 1 : 0);  // its structs are as those of tool_calls
    append_text(name, out);
    out += ": ";
    append_value(*batch.column(column), row, out);
  }
  out += "}\n";
}

}  // namespace dsj::data
