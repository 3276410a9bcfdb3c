// One row for every field of spec.training. Reading, writing, ranges (job/dsconfig/sections/arguments.cc), the resource's schema
// and its texts (job/spec/schema.h) walk this table: a new field needs only a member of TrainingArgs and a row.
// training_schema.cc also defines the functions of training_args.h.
// Tested by: tests/job/training_args_test.cc, tests/job/spec/schema_test.cc
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "job/training_args.h"

namespace dsj {

using TrainingMember =
    std::variant<std::string TrainingArgs::*, std::optional<int64_t> TrainingArgs::*,
                 std::optional<double> TrainingArgs::*, std::optional<bool> TrainingArgs::*,
                 std::optional<std::string> TrainingArgs::*,
                 std::optional<nlohmann::json> TrainingArgs::*,
                 std::optional<LoraArgs> TrainingArgs::*>;

/// Bounds of a number. A bound is in the range unless it is open.
struct NumberRange {
  std::optional<double> least, most;
  bool least_open = false, most_open = false;
};

namespace range {
constexpr NumberRange from(double least) {
  return {.least = least};
}
constexpr NumberRange above(double least) {
  return {.least = least, .least_open = true};
}
constexpr NumberRange from_to(double least, double most) {
  return {.least = least, .most = most};
}
constexpr NumberRange from_below(double least, double most) {
  return {.least = least, .most = most, .most_open = true};
}
constexpr NumberRange kAny{};
}  // namespace range

struct TrainingField {
  const char* name;  ///< camelCase
  TrainingMember member;
  const char* description;  ///< sentences for `kubectl explain`
  NumberRange range{};
  std::string_view choices{};   ///< for a text, separated by spaces; empty: any
  const char* alias = nullptr;  ///< another accepted name
  bool takes_flag = false;      ///< for a text: accepts true and false as words, in YAML too
};

/// In the order of the struct.
const std::vector<TrainingField>& training_fields();

/// The number if it was given; nullopt if not, or if the field is not a number.
std::optional<double> number_of(const TrainingField& field, const TrainingArgs& args);
/// The text if it was given; nullopt also for the required paths.
std::optional<std::string> text_of(const TrainingField& field, const TrainingArgs& args);

}  // namespace dsj
