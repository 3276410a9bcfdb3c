// The mark of KTO's rows: label (TRL, axolotl) or kto_tag (LLaMA-Factory) is true for a good
// answer and false for a bad one, and each answer is judged by itself. Internal to engine/data;
// callers use shaped_row (row_shape.h).
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
  std::string text;  ///< the row as text, with its fields in the file's order
};
/// Removes the mark: true or false, 1 or 0, or these as words, as in CSV. RowProblem if the row
/// has no mark or the mark has another value.
std::expected<UnmarkedRow, RowProblem> without_mark(nlohmann::json row, const std::string& text);

/// Turns a row that was shaped to learn its answer into one whose answer is judged; in a
/// conversation the last turn. RowProblem if it is not a prompt with an answer, or the last
/// turn not the assistant's.
std::expected<ShapedRow, RowProblem> to_judge(ShapedRow shaped);

}  // namespace dsj::data
