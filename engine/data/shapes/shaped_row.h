// A row in the one form that rows.h reads for its kind (row_shape.h, pair_shape.h). Internal to
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
  std::string shape;  ///< "question, answer": for people
  nlohmann::json row;
  std::string text;  ///< the row, with its fields in the file's order
  /// Fields that were renamed: the shape's name and the file's.
  std::vector<std::pair<std::string, std::string>> renamed;

  /// "output[0]" as the file calls it.
  std::string own_name(const std::string& field) const {
    const size_t end = std::min(field.find_first_of("[."), field.size());
    for (const auto& [name, own] : renamed)
      if (field.substr(0, end) == name) return own + field.substr(end);
    return field;
  }
  /// Of a pair: the row with the rejected answer, of the same kind; else empty.
  std::vector<ShapedRow> rejected;
  /// Of a row whose answer is judged (row_mark.h): whether it is good. nullopt: no mark was read.
  std::optional<bool> good;
};

}  // namespace dsj::data
