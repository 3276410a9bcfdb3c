// Metrics of the rows of a data set, for a curriculum that goes by them, and their files in the
// layout of DeepSpeed's data analyzer: OUT/METRIC/METRIC_{sample_to_metric, index_to_metric,
// index_to_sample, index_to_sample_percentile_merged}.{idx,bin}. Used by `dsj analyze`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/dataset.h"

namespace dsj::data {

/// The metrics that are known, by name:
///   length             tokens of the row, as it is trained on
///   vocabulary_rarity  -sum of ln p(t) over its tokens t, rounded, where p(t) is the share of t
///                      among the tokens of all rows (arXiv 2208.02813, "voc")
const std::vector<std::string>& metric_names();

/// The metric of every row. Reads and tokenizes the rows on `threads` threads, vocabulary_rarity
/// twice. `name`: a known one (DSJ_CHECK). The same numbers for any number of threads.
Result<std::vector<int64_t>> metric_of_rows(const Dataset& dataset, const std::string& name,
                                            int threads);

/// Writes the files of one metric below `folder`, which is made.
Status write_metric(Files& files, const std::string& folder, const std::string& name,
                    const std::vector<int64_t>& of_row);

/// "FOLDER/NAME/NAME_index_to_sample": what a ds_config names, without ".idx" and ".bin".
std::string metric_file(const std::string& folder, const std::string& name,
                        const std::string& what);

}  // namespace dsj::data
