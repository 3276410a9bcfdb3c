// Every field of spec.training: one row each. Reading, writing, ranges (job/dsconfig/arguments.cc), the resource's
// schema and its texts (job/spec/schema.h) walk this table, so a new field is a member of TrainingArgs and its row. training_schema.cc also has the
// functions of training_args.h.
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

/// Bounds of a number. They belong to the range unless they are open.
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
constexpr NumberRange above_to(double least, double most) {
  return {.least = least, .most = most, .least_open = true};
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
  std::string_view choices{};   ///< of a text, separated by spaces; empty: any
  const char* alias = nullptr;  ///< another name that users write
  bool takes_flag = false;      ///< of a text: true or false stands for a word, in YAML too
};

/// In the order of the struct.
const std::vector<TrainingField>& training_fields();

/// A number that was given; nullopt: it was not, or the field is no number.
std::optional<double> number_of(const TrainingField& field, const TrainingArgs& args);
/// A text that was given; paths that a job must have are none.
std::optional<std::string> text_of(const TrainingField& field, const TrainingArgs& args);

}  // namespace dsj
