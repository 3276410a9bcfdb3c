// What becomes of every argument of Hugging Face's programs: one row each. The command line (job/spec),
// spec.training (training_reader) and docs/arguments.md go by it. A name is in snake_case; a manifest writes
// it in camelCase.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsj {

enum class ArgumentVerdict {
  Taken,     ///< it does what it says
  NoEffect,  ///< accepted with a warning: no value can change a result here
  Refused,   ///< a value that would change the result is refused; others are without effect
};
const char* name_of(ArgumentVerdict verdict);  ///< "taken", "no effect", "refused"

struct ArgumentRow {
  std::string_view name;
  ArgumentVerdict verdict;
  /// Taken: what to know of it, or empty. NoEffect: why. Refused: why, and what to do.
  std::string_view reason;
  /// Refused: the values without effect, separated by spaces, besides none, null and false.
  std::string_view neutral = {};
  /// Taken: the field of spec.training that takes it, if that has another name.
  std::string_view field = {};
  /// The field is an object, and this member of it takes the value; what is neutral asks for nothing.
  std::string_view member = {};
};

/// A list of rows with a heading: whose arguments they are.
struct ArgumentGroup {
  std::string_view title;
  std::span<const ArgumentRow> rows;
};
/// transformers 5's TrainingArguments first, every field of it, in its order.
const std::vector<ArgumentGroup>& argument_groups();
/// Null: no row has the name. snake_case.
const ArgumentRow* argument_row(std::string_view name);
/// Whether `name` asks for a way to train that is not built. An import that dropped it would train
/// something else, so it refuses it, too.
bool is_method(std::string_view name);
/// The same by a manifest's name, in camelCase.
const ArgumentRow* argument_row_of_field(std::string_view camel);

/// A value that stands for another argument: `--use_cpu True` is device: cpu.
struct ArgumentMeaning {
  std::string_view name;
  std::string_view value;           ///< as a user writes it, in lower case
  std::string_view field, becomes;  ///< of spec.training; empty: nothing, it is the default
};
/// Null: the argument has no such value. Switches: "true" and "false".
const ArgumentMeaning* argument_meaning(std::string_view name, std::string_view value);
/// Whether values of it have meanings at all.
bool has_meanings(std::string_view name);

/// Whether a Refused row's argument may have the value: it asks for nothing.
bool asks_for_nothing(const ArgumentRow& row, std::string_view value);

std::string snake_case(std::string_view camel);
std::string camel_case(std::string_view snake);

/// docs/arguments.md.
std::string argument_table_markdown();

}  // namespace dsj
