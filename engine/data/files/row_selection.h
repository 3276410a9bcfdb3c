// Selects and orders the rows of a job's data sets. Names and results are LLaMA-Factory's, that
// is those of datasets: concatenate_datasets, interleave_datasets with first_exhausted (under)
// or all_exhausted (over), train_test_split. Internal to engine/data, except the struct, which
// is in dataset.h's options.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj::data {

enum class Mix { Concat, InterleaveUnder, InterleaveOver };

struct RowSelection {
  int64_t max_samples = 0;  ///< the first rows of each data set; 0 means all
  Mix mix = Mix::Concat;
  std::vector<double> weights = {};  ///< for interleaving, one per data set; empty means in turns
  double held_out = 0;               ///< number, or share below 1, of rows to move to the front
  uint64_t seed = 42;                ///< of all random draws
};

/// The selection of spec.training. `weights`: numbers separated by commas. Errors: BadInput if
/// they are not, or if there is nothing to interleave.
Result<RowSelection> selection_of(int64_t max_samples, std::string_view mix,
                                  std::string_view weights, double held_out, uint64_t seed);

/// The selection as text, for DataRecord. Empty if it is all rows in their order.
std::string selection_text(const RowSelection& selection);

/// Row numbers in the order in which rows are dealt; rows are numbered across all data sets.
/// `rows`: the size of each data set. Empty means all rows in their order. With interleave_over
/// a row may occur more than once. Errors: BadInput if the weights do not fit the data sets, or
/// a set is empty.
Result<std::vector<int64_t>> selected_rows(const RowSelection& selection,
                                           std::span<const int64_t> rows);

/// How many of `rows` rows are held out, rounded up.
int64_t held_out_count(double held_out, int64_t rows);

}  // namespace dsj::data
