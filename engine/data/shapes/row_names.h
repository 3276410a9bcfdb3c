// Renames a data set's fields to the names that shapes use (row_shape.h), by LLaMA-Factory's
// "columns" and "tags" of dataset_info.json, or by training.datasetColumns, which has both in
// one object. Internal to engine/data.
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
  /// `columns`: an object of columns and tags. Errors: BadInput at `where` if a key is unknown,
  /// if a column holds media, or if a value is not a name.
  static Result<RowNames> of(const nlohmann::json& columns, const std::string& where);
  /// `entry`: an entry of dataset_info.json. LLaMA-Factory's defaults apply.
  static Result<RowNames> of_entry(const nlohmann::json& entry, const std::string& where);

  /// Whether no field is renamed.
  bool empty() const { return columns_.empty() && tags_.empty() && roles_.empty(); }
  /// The names as text, for the key of the row cache.
  std::string text() const;

  /// Returns the row under the shapes' names. An unmapped field keeps its name, unless that is
  /// a name of a shape: then it gets an unread name. RowProblem if the row lacks a column.
  /// {"text": "text"} alone is TRL's default of dataset_text_field: a row's text comes before a
  /// question and its answer, but after all that TRL reads by itself.
  std::expected<nlohmann::ordered_json, RowProblem> renamed(
      const nlohmann::ordered_json& row) const;
  /// The file's name of a field such as "output[0]".
  std::string own_name(const std::string& field) const;

 private:
  bool is_plain_text() const;
  nlohmann::ordered_json renamed_turns(nlohmann::ordered_json row) const;
  void rename_turns(nlohmann::ordered_json& turns) const;

  std::map<std::string, std::string> columns_;  ///< name in shapes → name in the file
  std::map<std::string, std::string> tags_;     ///< role, content → name in the file
  std::map<std::string, std::string> roles_;    ///< speaker in the file → role
};

}  // namespace dsj::data
