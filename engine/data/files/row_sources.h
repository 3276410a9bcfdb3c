// Resolves the data sets that a job names to files. Internal to engine/data.
//
// dataPath is one path or several: a file, a directory, or a pattern (*, ?, [a-z], ** for any
// depth). Each path is a data set with its files in order of name. In a directory written by
// datasets' save_to_disk, only the files that it lists count, and of several splits only train.
// With training.dataset, dataPath is a directory with LLaMA-Factory's dataset_info.json, and
// each name in dataset is a data set of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/shapes/row_names.h"

namespace dsj::data {

struct RowSource {
  std::string name;                ///< as in the job
  std::vector<std::string> files;  ///< at least one; existence is checked when it is opened
  RowNames names;
};

/// `columns`: training.datasetColumns, null or an object; `dataset`: training.dataset, or empty.
/// Errors: BadInput if a pattern matches nothing, if a directory has no row files or those of
/// several splits, or if dataset_info.json lacks a name or its rows are not in local files.
Result<std::vector<RowSource>> row_sources(Files& files, const std::string& data_path,
                                           const std::string& dataset,
                                           const nlohmann::json& columns);

/// All files of all data sets, in order.
Result<std::vector<std::string>> row_files(Files& files, const std::string& data_path,
                                           const std::string& dataset);

}  // namespace dsj::data
