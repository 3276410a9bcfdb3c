// The shape of a preference row: a prompt, and of two answers to it the chosen and the rejected one.
// Internal to engine/data; callers use shaped_row (row_shape.h).
// Tested by: tests/engine/data/pair_rows_test.cc
#pragma once

#include <expected>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/data/shapes/row_fields.h"
#include "engine/data/shapes/shaped_row.h"

namespace dsj::data {

/// `row`: an object, and `text` its text. A problem: an answer is missing, the answers are not of one
/// form, they begin with no prompt, a field holds media.
std::expected<ShapedRow, RowProblem> shaped_pair(nlohmann::json row, std::string text);

/// How many characters, in bytes, two texts have in common at their begin, as TRL's extract_prompt
/// counts them: without a space at the end; one less if one text begins the other.
std::size_t common_prompt(const std::string& chosen, const std::string& rejected);

}  // namespace dsj::data
