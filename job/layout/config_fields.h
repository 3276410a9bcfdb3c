// Reads typed fields of a config.json object and keeps the first problem. Internal to layout.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::layout {

class Fields {
 public:
  /// `path` is put before a field's name in messages ("rope_scaling.").
  Fields(const nlohmann::json& object, std::string where, std::string path = {})
      : object_(object), where_(std::move(where)), path_(std::move(path)) {}

  /// The field is missing or null.
  bool absent(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null();
  }

  /// `fallback` 0: the field is required.
  int64_t positive(const char* key, int64_t fallback = 0) {
    if (absent(key)) {
      if (fallback <= 0) note(key, "is missing; expected a positive integer");
      return std::max<int64_t>(fallback, 1);
    }
    const auto& value = object_[key];
    if (value.is_number_integer() && value.get<int64_t>() > 0) return value.get<int64_t>();
    note(key, "is " + value.dump() + "; expected a positive integer");
    return 1;
  }

  double number(const char* key, double fallback) {
    if (absent(key)) return fallback;
    const auto& value = object_[key];
    if (value.is_number()) return value.get<double>();
    note(key, "is " + value.dump() + "; expected a number");
    return fallback;
  }

  /// A required number above `above`.
  double required(const char* key, double above) {
    if (absent(key)) {
      note(key, "is missing; expected a number");
      return above + 1;
    }
    const double value = number(key, above + 1);
    if (!(value > above)) note(key, "is " + object_[key].dump() + ", which is too small");
    return value;
  }

  bool flag(const char* key, bool fallback) {
    if (absent(key)) return fallback;
    const auto& value = object_[key];
    if (value.is_boolean()) return value.get<bool>();
    note(key, "is " + value.dump() + "; expected true or false");
    return fallback;
  }

  std::string text(const char* key, const std::string& fallback) {
    if (absent(key)) return fallback;
    const auto& value = object_[key];
    if (value.is_string()) return value.get<std::string>();
    note(key, "is " + value.dump() + "; expected a string");
    return fallback;
  }

  /// A dropout probability: at least 0, below 1.
  double probability(const char* key, double fallback) {
    const double p = number(key, fallback);
    if (p >= 0 && p < 1) return p;
    note(key,
         "is " + object_.value(key, nlohmann::json()).dump() + "; expected a probability below 1");
    return 0;
  }

  void require(bool ok, const char* key, const std::string& otherwise) {
    if (!ok) note(key, otherwise);
  }

  /// Takes over the problem that `other` found.
  void inherit(const Fields& other) {
    if (problem_.empty()) problem_ = other.problem_;
  }

  bool failed() const { return !problem_.empty(); }
  Error error() const { return {ErrorKind::BadInput, problem_, where_, {}}; }

 private:
  void note(const std::string& key, const std::string& what) {
    if (problem_.empty()) problem_ = "\"" + path_ + key + "\" " + what;
  }

  const nlohmann::json& object_;
  const std::string where_, path_;
  std::string problem_;
};

}  // namespace dsj::layout
