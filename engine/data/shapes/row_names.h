// What a data set calls its fields: LLaMA-Factory's "columns" and "tags", of
// dataset_info.json or of training.datasetColumns, which has both in one object. Renamed rows have the
// names that the shapes go by (row_shape.h). Internal to engine/data.
//
//   columns  prompt, query, response (alpaca's instruction, input, output), history, system, tools,
//            messages, kto_tag (the field label), chosen, rejected; ours: completion, text
//   tags     role_tag, content_tag; user_tag, assistant_tag, observation_tag, function_tag, system_tag
#pragma once

#include <expected>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/data/shapes/row_fields.h"

namespace dsj::data {

class RowNames {
 public:
  /// Of an object of columns and tags. BadInput at `where`: an unknown key, a column of media, a value
  /// that is no name.
  static Result<RowNames> of(const nlohmann::json& columns, const std::string& where);
  /// Of an entry of dataset_info.json, with LLaMA-Factory's defaults.
  static Result<RowNames> of_entry(const nlohmann::json& entry, const std::string& where);

  /// No field has another name.
  bool empty() const { return columns_.empty() && tags_.empty() && roles_.empty(); }
  /// Everything that a check of rows depends on.
  std::string text() const;

  /// The row under the shapes' names. What no column names keeps its own, or, where that is a name of
  /// a shape, gets one that nothing reads. A problem: a column that the row lacks.
  std::expected<nlohmann::ordered_json, RowProblem> renamed(
      const nlohmann::ordered_json& row) const;
  /// "output[0]" as the file calls it.
  std::string own_name(const std::string& field) const;

 private:
  void rename_turns(nlohmann::ordered_json& turns) const;

  std::map<std::string, std::string> columns_;  ///< the shapes' name → the file's
  std::map<std::string, std::string> tags_;     ///< role, content → the file's
  std::map<std::string, std::string> roles_;    ///< a speaker as the file names it → its role
};

}  // namespace dsj::data
