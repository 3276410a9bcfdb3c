// A row in the form that rows.h reads for its kind (row_shape.h, pair_shape.h). Internal to
// engine/data. Tested by: tests/engine/data/shapes/row_shape_test.cc
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/shapes/sample.h"

namespace dsj::data {

struct ShapedRow {
  RowKind kind = RowKind::Alpaca;
  std::string shape;  ///< for messages, such as "question, answer"
  nlohmann::json row;
  std::string text;  ///< the row, with its fields in the file's order
  /// Renamed fields: name in the shape, name in the file.
  std::vector<std::pair<std::string, std::string>> renamed;

  /// The file's name of a field such as "output[0]".
  std::string own_name(const std::string& field) const {
    const size_t end = std::min(field.find_first_of("[."), field.size());
    for (const auto& [name, own] : renamed)
      if (field.substr(0, end) == name) return own + field.substr(end);
    return field;
  }
  /// For a pair: the row with the rejected answer, of the same kind. Empty for other rows.
  std::vector<ShapedRow> rejected;
  /// For a row whose answer is judged (row_mark.h): whether it is good. nullopt if no mark was
  /// read.
  std::optional<bool> good;
};

}  // namespace dsj::data
