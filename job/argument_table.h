// A table with one row per argument of Hugging Face's programs, which says how dsj handles it. The
// command line (job/spec), spec.training (training_reader) and docs/arguments.md use it. Names are
// in snake_case; a manifest writes them in camelCase.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsj {

enum class ArgumentVerdict {
  Taken,     ///< it works as documented
  NoEffect,  ///< accepted with a warning: no value can change a result here
  Refused,   ///< a value that would change the result is refused; other values have no effect
};
const char* name_of(ArgumentVerdict verdict);  ///< "taken", "no effect", "refused"

struct ArgumentRow {
  std::string_view name;
  ArgumentVerdict verdict;
  /// Taken: a remark, or empty. NoEffect: the reason. Refused: the reason and what to do.
  std::string_view reason;
  /// Refused: the values that have no effect besides none, null and false, separated by spaces.
  std::string_view neutral = {};
  /// Taken: the field of spec.training that takes the value, if its name differs.
  std::string_view field = {};
  /// If the field is an object: the member that takes the value. Neutral values do nothing.
  std::string_view member = {};
};

/// A list of rows with a heading that names the program of the arguments.
struct ArgumentGroup {
  std::string_view title;
  std::span<const ArgumentRow> rows;
};
/// The first group is every field of transformers 5's TrainingArguments, in its order.
const std::vector<ArgumentGroup>& argument_groups();
/// The row of `name`, in snake_case. Null if no row has this name.
const ArgumentRow* argument_row(std::string_view name);
/// Whether `name` selects a training method that is not built. An import refuses such an argument,
/// too: without it, the run would train something else.
bool is_method(std::string_view name);
/// As argument_row(), for a manifest's name in camelCase.
const ArgumentRow* argument_row_of_field(std::string_view camel);

/// A value that means the same as another argument: `--use_cpu True` is device: cpu.
struct ArgumentMeaning {
  std::string_view name;
  std::string_view value;           ///< as a user writes it, in lower case
  std::string_view field, becomes;  ///< of spec.training; empty if the value is the default
};
/// Null if the argument has no such value. The values of switches are "true" and "false".
const ArgumentMeaning* argument_meaning(std::string_view name, std::string_view value);
/// Whether any value of the argument has such a meaning.
bool has_meanings(std::string_view name);

/// Whether a Refused row accepts the value because it has no effect.
bool asks_for_nothing(const ArgumentRow& row, std::string_view value);

std::string snake_case(std::string_view camel);
std::string camel_case(std::string_view snake);

/// The text of docs/arguments.md.
std::string argument_table_markdown();

}  // namespace dsj
