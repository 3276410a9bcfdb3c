// The data sets that a job names, and their files. Internal to engine/data.
//
// dataPath is one path or several: a file, a directory, a pattern (*, ?, [a-z], ** for any depth). Each
// path is a data set; its files follow each other by name. Of a directory that datasets saved
// (save_to_disk) the files that it lists count, and of several splits train. With training.dataset it is a directory
// with LLaMA-Factory's dataset_info.json, and each name of it is a data set.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/shapes/row_names.h"

namespace dsj::data {

struct RowSource {
  std::string name;  ///< as the job names it
  std::vector<std::string>
      files;  ///< at least one; whether a path is there shows when it is opened
  RowNames names;
};

/// `columns`: training.datasetColumns, null or an object; `dataset`: training.dataset, or empty.
/// BadInput: a pattern that finds nothing, a directory without row files or with those of several
/// splits, a name that dataset_info.json does not have or whose rows lie elsewhere.
Result<std::vector<RowSource>> row_sources(Files& files, const std::string& data_path,
                                           const std::string& dataset,
                                           const nlohmann::json& columns);

/// All files of all data sets, in order.
Result<std::vector<std::string>> row_files(Files& files, const std::string& data_path,
                                           const std::string& dataset);

}  // namespace dsj::data
