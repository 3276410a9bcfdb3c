// Reads typed fields of a config.json object and records the first problem. Internal to layout.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/json.h"
#include "common/result.h"
#include "common/text.h"

namespace dsj::layout {

class Fields {
 public:
  /// `path` precedes a field's name in messages ("rope_scaling.").
  Fields(const nlohmann::json& object, std::string where, std::string path = {})
      : object_(object), where_(std::move(where)), path_(std::move(path)) {}

  /// Whether the field is missing or null.
  bool absent(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null();
  }

  /// A whole number from 1 to `most`. The field is required if `fallback` is 0.
  int64_t positive(const char* key, int64_t most, int64_t fallback = 0) {
    if (absent(key)) {
      if (fallback <= 0) note(key, "is missing; expected a positive integer");
      return std::clamp<int64_t>(fallback, 1, most);
    }
    return whole(key, 1, most, 1);
  }

  /// A whole number from `least` to `most`. The result is in that range even if the file is wrong.
  int64_t whole(const char* key, int64_t least, int64_t most, int64_t fallback) {
    if (absent(key)) return fallback;
    const auto& value = object_[key];
    const bool integer = value.is_number_integer() &&
                         (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    if (integer && value.get<int64_t>() >= least && value.get<int64_t>() <= most)
      return value.get<int64_t>();
    note(key, "is " + json_brief(value) + "; expected a whole number from " +
                  std::to_string(least) + " to " + std::to_string(most));
    return std::clamp(fallback, least, most);
  }

  /// A number from `least` to `most`, inclusive.
  double number(const char* key, double fallback, double least, double most) {
    const double value = number(key, fallback);
    if (value >= least && value <= most) return value;
    note(key, "is " + json_brief(object_[key]) + "; expected a number from " + text::number(least) +
                  " to " + text::number(most));
    return fallback;
  }

  double number(const char* key, double fallback) {
    if (absent(key)) return fallback;
    const auto& value = object_[key];
    if (value.is_number()) return value.get<double>();
    note(key, "is " + json_brief(value) + "; expected a number");
    return fallback;
  }

  /// A required number above `above`, at most `most`.
  double required(const char* key, double above, double most) {
    if (absent(key)) {
      note(key, "is missing; expected a number");
      return above + 1;
    }
    const double value = number(key, above + 1);
    if (value > above && value <= most) return value;
    note(key, "is " + json_brief(object_[key]) + "; expected a number above " +
                  text::number(above) + ", at most " + text::number(most));
    return above + 1;
  }

  bool flag(const char* key, bool fallback) {
    if (absent(key)) return fallback;
    const auto& value = object_[key];
    if (value.is_boolean()) return value.get<bool>();
    note(key, "is " + json_brief(value) + "; expected true or false");
    return fallback;
  }

  std::string text(const char* key, const std::string& fallback) {
    if (absent(key)) return fallback;
    const auto& value = object_[key];
    if (value.is_string()) return value.get<std::string>();
    note(key, "is " + json_brief(value) + "; expected a string");
    return fallback;
  }

  /// A dropout probability: at least 0, below 1.
  double probability(const char* key, double fallback) {
    const double p = number(key, fallback);
    if (p >= 0 && p < 1) return p;
    note(key, "is " + json_brief(object_.value(key, nlohmann::json())) +
                  "; expected a probability below 1");
    return 0;
  }

  void require(bool ok, const char* key, const std::string& otherwise) {
    if (!ok) note(key, otherwise);
  }

  /// Takes over the problem of `other`, unless there is one already.
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
