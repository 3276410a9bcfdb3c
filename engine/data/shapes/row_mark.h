// The mark of an answer that is judged by itself, as KTO's rows have it: label (TRL, axolotl) or kto_tag
// (LLaMA-Factory), true for a good answer and false for a bad one. Internal to engine/data; callers use
// shaped_row (row_shape.h).
// Tested by: tests/engine/data/marked_rows_test.cc
#pragma once

#include <expected>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/data/shapes/row_fields.h"
#include "engine/data/shapes/shaped_row.h"

namespace dsj::data {

/// A row without its mark.
struct UnmarkedRow {
  bool good = false;
  nlohmann::json row;
  std::string text;  ///< of the row, with its fields in the file's order
};
/// A mark is true or false, 1 or 0, or such a word as CSV has it. A problem: there is none, or another
/// value.
std::expected<UnmarkedRow, RowProblem> without_mark(nlohmann::json row, const std::string& text);

/// A row that was shaped to learn its answer, as one whose answer is judged: of a conversation that is its
/// last turn. A problem: the row has no prompt and answer, or the last turn is not the assistant's.
std::expected<ShapedRow, RowProblem> to_judge(ShapedRow shaped);

}  // namespace dsj::data
