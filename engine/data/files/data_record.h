// What a run's rows were made from, by content, so that a later attempt knows whether its rows are the
// same in the same order. A checkpoint records it (engine/train/run_state.h), and so does `dsj run`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

/// XXH3-128 of a file's bytes, as hexadecimal digits. Reads it once.
Result<std::string> content_of(Files& files, const std::string& path);
/// The same over all files of a job's rows (row_sources.h). One file: its content_of.
Result<std::string> rows_content(Files& files, const std::string& data_path,
                                 const std::string& dataset);
/// The same over the files that say what a text's tokens are. Empty: the model has none of them.
Result<std::string> tokenizer_content(Files& files, const std::string& model_directory);

struct DataRecord {
  std::string train, eval;  ///< rows_content; eval is empty without files of its own
  std::string tokenizer;    ///< tokenizer_content
  std::string selection;    ///< selection_text (row_selection.h)
  int64_t rows = 0;         ///< that are dealt or held out
  int64_t split_rows = 0;   ///< of them held out for evaluation, from the first on
  int64_t max_seq_length = 0;
  std::string chat_template;
  bool by_length = false;  ///< the order of the rows follows from their lengths
  std::string packing;     ///< the strategy (packs.h); empty: rows are not packed
};
nlohmann::json to_json(const DataRecord& record);

/// What differs between two records, for people.
struct DataChange {
  std::vector<std::string> told;    ///< the order of the rows stays as it was
  std::vector<std::string> breaks;  ///< it cannot be kept
};
/// Both as to_json gives them. Null, or without a member: nothing is known, so nothing differs.
DataChange data_change(const nlohmann::json& saved, const nlohmann::json& now);

}  // namespace dsj::data
