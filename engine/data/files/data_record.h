// Identifies a run's rows by content, so that a later attempt can check that its rows are the same
// in the same order. A checkpoint records it (engine/train/step/run_state.h), and so does `dsj run`.
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
/// The same for all files of a job's rows (row_sources.h); for one file its content_of.
Result<std::string> rows_content(Files& files, const std::string& data_path,
                                 const std::string& dataset);
/// The same for the files that define a text's tokens. Empty if the model has none of them.
Result<std::string> tokenizer_content(Files& files, const std::string& model_directory);

struct DataRecord {
  std::string train, eval;  ///< rows_content; eval is empty if it has no files of its own
  std::string tokenizer;    ///< tokenizer_content
  std::string selection;    ///< selection_text (row_selection.h)
  int64_t rows = 0;         ///< all rows, dealt or held out
  int64_t split_rows = 0;   ///< how many of the first rows are held out for evaluation
  int64_t max_seq_length = 0;
  std::string chat_template, default_system;
  bool by_length = false;  ///< the order of rows depends on their lengths
  std::string packing;     ///< the strategy (packs.h); empty: rows are not packed
};
nlohmann::json to_json(const DataRecord& record);

/// The differences of two records, as messages.
struct DataChange {
  std::vector<std::string> told;    ///< the order of rows is unchanged
  std::vector<std::string> breaks;  ///< the order of rows changes
};
/// Both as made by to_json. Null or a missing member means unknown, which counts as equal.
DataChange data_change(const nlohmann::json& saved, const nlohmann::json& now);

}  // namespace dsj::data
