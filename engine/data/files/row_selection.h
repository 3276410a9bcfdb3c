// Which rows of a job's data sets are dealt, and in which order they are numbered. Names and results
// are LLaMA-Factory's, that is those of datasets: concatenate_datasets, interleave_datasets with
// first_exhausted (under) or all_exhausted (over), train_test_split. Internal to engine/data, but for
// the struct that dataset.h's options hold.
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
  int64_t max_samples = 0;  ///< of each data set the first ones; 0: all
  Mix mix = Mix::Concat;
  std::vector<double> weights = {};  ///< of interleaving, one for each data set; empty: in turns
  double held_out = 0;               ///< rows, or below 1 a share, that become the first ones
  uint64_t seed = 42;                ///< of what is drawn
};

/// The selection of spec.training. `weights`: numbers with commas between. BadInput: they are none,
/// or there is nothing to interleave.
Result<RowSelection> selection_of(int64_t max_samples, std::string_view mix,
                                  std::string_view weights, double held_out, uint64_t seed);

/// For a record of which rows were dealt. Empty: all, as they are.
std::string selection_text(const RowSelection& selection);

/// Numbers of rows in the order in which they are dealt; rows are numbered through all data sets.
/// `rows`: how many each data set has. Empty: all of them as they are. With interleave_over a row may
/// come more than once. BadInput: the weights do not fit the data sets, or a set has no row.
Result<std::vector<int64_t>> selected_rows(const RowSelection& selection,
                                           std::span<const int64_t> rows);

/// Of `rows` rows, how many are held out: rounded up.
int64_t held_out_count(double held_out, int64_t rows);

}  // namespace dsj::data
