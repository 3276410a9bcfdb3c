// Metrics of a data set's rows for a curriculum, and their files in the layout of DeepSpeed's
// data analyzer: OUT/METRIC/METRIC_{sample_to_metric, index_to_metric, index_to_sample,
// index_to_sample_percentile_merged}.{idx,bin}. Used by `dsj analyze`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/dataset.h"

namespace dsj::data {

/// The names of all metrics:
///   length             tokens of the row as trained
///   vocabulary_rarity  -sum of ln p(t) over its tokens t, rounded, where p(t) is the share of t
///                      among the tokens of all rows (arXiv 2208.02813, "voc")
const std::vector<std::string>& metric_names();

/// The metric of every row. Reads and tokenizes the rows on `threads` threads, for
/// vocabulary_rarity twice. `name`: one of metric_names() (DSJ_CHECK). The result does not
/// depend on `threads`.
Result<std::vector<int64_t>> metric_of_rows(const Dataset& dataset, const std::string& name,
                                            int threads);

/// Writes the files of one metric below `folder`, which is created.
Status write_metric(Files& files, const std::string& folder, const std::string& name,
                    const std::vector<int64_t>& of_row);

/// The path as in a ds_config: "FOLDER/NAME/NAME_index_to_sample", without ".idx" and ".bin".
std::string metric_file(const std::string& folder, const std::string& name,
                        const std::string& what);

}  // namespace dsj::data
