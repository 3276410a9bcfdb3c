// Converts described structs (field.h) to JSON objects and back. JSON has no number that is not
// finite: on the wire it is the string "NaN", "Infinity" or "-Infinity", as in Protocol Buffers'
// JSON. Null means unknown. Only the files that read and write reports include this.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/text.h"
#include "job/report/field.h"

namespace dsj::report {

template <Described T>
nlohmann::json to_json(const T& object);
template <Described T>
std::optional<T> from_json(const nlohmann::json& object, nlohmann::json* others = nullptr);

/// Numbers with names that no table lists. Each is written as a field of the object itself. A
/// reader finds them in `others`.
using Metrics = std::optional<std::map<std::string, double>>;

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

// ---- values

template <typename T>
nlohmann::json value_to_json(const T& value) {
  if constexpr (Described<T>) {
    return to_json(value);
  } else {
    return value;
  }
}
template <Described T>
nlohmann::json value_to_json(const std::vector<T>& values) {
  nlohmann::json list = nlohmann::json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}
/// The string for a number that is not finite; nullptr if it is finite.
inline const char* word_of(double value) {
  if (std::isfinite(value)) return nullptr;
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}
/// The number of such a string, also in C's and Python's spelling. nullopt for any other text.
std::optional<double> number_of_word(std::string_view text);
inline nlohmann::json value_to_json(double value) {
  const char* word = word_of(value);
  return word ? nlohmann::json(word) : nlohmann::json(value);
}

/// False if `json` is not a value of that type; `value` is then unchanged.
inline bool value_from_json(const nlohmann::json& json, int64_t& value) {
  if (json.is_number_float()) {  // "12.0", as users' programs may write it
    const auto whole = text::to_int(json.get<double>());
    return whole ? (value = *whole, true) : false;
  }
  return json.is_number_integer() ? (value = json.get<int64_t>(), true) : false;
}
inline bool value_from_json(const nlohmann::json& json, double& value) {
  if (json.is_string()) {
    const auto number = number_of_word(json.get_ref<const std::string&>());
    return number ? (value = *number, true) : false;
  }
  return json.is_number() ? (value = json.get<double>(), true) : false;
}
inline bool value_from_json(const nlohmann::json& json, bool& value) {
  return json.is_boolean() ? (value = json.get<bool>(), true) : false;
}
inline bool value_from_json(const nlohmann::json& json, std::string& value) {
  return json.is_string() ? (value = json.get<std::string>(), true) : false;
}
inline bool value_from_json(const nlohmann::json& json, nlohmann::json& value) {
  value = json;
  return true;
}
inline bool value_from_json(const nlohmann::json& json, std::map<std::string, int64_t>& value) {
  if (!json.is_object()) return false;
  std::map<std::string, int64_t> read;
  for (const auto& [key, item] : json.items()) {
    if (!value_from_json(item, read[key])) return false;
  }
  value = std::move(read);
  return true;
}
template <Described T>
bool value_from_json(const nlohmann::json& json, T& value) {
  auto read = from_json<T>(json);
  return read ? (value = std::move(*read), true) : false;
}
/// Leaves out what is not an object.
template <Described T>
bool value_from_json(const nlohmann::json& json, std::vector<T>& value) {
  if (!json.is_array()) return false;
  value.clear();
  for (const nlohmann::json& item : json) {
    if (auto read = from_json<T>(item)) value.push_back(std::move(*read));
  }
  return true;
}
template <typename T>
bool value_from_json(const nlohmann::json& json, std::optional<T>& value) {
  T read{};
  if (json.is_null()) return true;
  return value_from_json(json, read) ? (value = std::move(read), true) : false;
}

// ---- objects

template <Described T>
nlohmann::json to_json(const T& object) {
  nlohmann::json written = nlohmann::json::object();
  for_each_entry<T>([&](const auto& field) {
    const auto& value = object.*field.member;
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, Metrics>) {
      if (value)
        for (const auto& [name, number] : *value) written[name] = value_to_json(number);
    } else if constexpr (IsOptional<Value>::value) {
      if (value) written[field.name] = value_to_json(*value);
    } else if constexpr (std::is_same_v<Value, nlohmann::json>) {
      if (!value.is_null()) written[field.name] = value;
    } else {
      written[field.name] = value_to_json(value);
    }
  });
  return written;
}

/// nullopt if not an object, or if a required field is missing or negative. `others` gets the
/// fields that the table does not read.
template <Described T>
std::optional<T> from_json(const nlohmann::json& object, nlohmann::json* others) {
  if (!object.is_object()) return std::nullopt;
  if (others) *others = object;
  T read;
  bool whole = true;
  for_each_entry<T>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(read.*field.member)>;
    if constexpr (!std::is_same_v<Value, Metrics>) {
      const auto found = object.find(field.name);
      const bool taken = found != object.end() && value_from_json(*found, read.*field.member);
      if (taken && others) others->erase(field.name);
      if (!field.must) return;
      if constexpr (std::is_same_v<Value, int64_t>) {
        whole = whole && taken && read.*field.member >= 0;
      }
    }
  });
  return whole ? std::optional(std::move(read)) : std::nullopt;
}

/// Parses a line of JSON. Also accepts Python's NaN, Infinity and -Infinity, which JSON lacks, and
/// reads them as the strings above. Discarded if the line is neither.
nlohmann::json parse_line(const std::string& line);

// ---- kinds: objects that name their kind under `key`

template <typename Variant>
std::string kind_to_line(const char* key, const Variant& report) {
  return std::visit(
      [&]<typename Kind>(const Kind& kind) {
        nlohmann::json object = to_json(kind);
        object[key] = Kind::kKind;
        return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
      },
      report);
}

/// nullopt if not JSON, of a kind that Variant lacks, or incomplete.
template <typename Variant>
std::optional<Variant> kind_from_line(const char* key, const std::string& line,
                                      nlohmann::json* others = nullptr) {
  const nlohmann::json object = parse_line(line);
  if (!object.is_object()) return std::nullopt;
  const auto name = object.find(key);
  if (name == object.end() || !name->is_string()) return std::nullopt;
  std::optional<Variant> read;
  [&]<size_t... I>(std::index_sequence<I...>) {
    (
        [&] {
          using Kind = std::variant_alternative_t<I, Variant>;
          if (*name != Kind::kKind) return;
          if (auto kind = report::from_json<Kind>(object, others)) read = std::move(*kind);
        }(),
        ...);
  }
  (std::make_index_sequence<std::variant_size_v<Variant>>());
  if (read && others) others->erase(key);
  return read;
}

}  // namespace dsj::report
