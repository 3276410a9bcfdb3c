// Shapes a preference row: one prompt with a chosen and a rejected answer. Internal to
// engine/data; callers use shaped_row (row_shape.h).
// Tested by: tests/engine/data/pair_rows_test.cc
#pragma once

#include <expected>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/data/shapes/row_fields.h"
#include "engine/data/shapes/shaped_row.h"

namespace dsj::data {

/// `row`: an object; `text`: its text. RowProblem if an answer is missing, if the answers
/// differ in form, if they share no prompt, or if a field holds media.
std::expected<ShapedRow, RowProblem> shaped_pair(nlohmann::json row, std::string text);

/// Length in bytes of the common beginning of two texts, in whole characters, as TRL's
/// extract_prompt counts: without a space at the end; one less if one text begins the other.
std::size_t common_prompt(const std::string& chosen, const std::string& rejected);

}  // namespace dsj::data
