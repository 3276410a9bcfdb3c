#include "engine/data/row_sizes.h"

#include <algorithm>

#include "common/check.h"
#include "engine/data/each_row.h"

namespace dsj::data {
namespace {

RowSize size_of(const Sample& sample) {
  DSJ_CHECK(!sample.labels.empty());
  auto targets = std::count_if(sample.labels.begin() + 1, sample.labels.end(),
                               [](int32_t label) { return label != kIgnoredLabel; });
  if (sample.second > 0)  // a row's first token is not predicted
    targets -= sample.labels[static_cast<size_t>(sample.second)] != kIgnoredLabel;
  return {static_cast<int32_t>(sample.input_ids.size()), static_cast<int32_t>(targets)};
}

}  // namespace

Result<std::vector<RowSize>> row_sizes(const Dataset& dataset, int64_t first, int64_t count,
                                       int threads, RowCut cut) {
  DSJ_CHECK(count >= 0);
  std::vector<RowSize> sizes(static_cast<size_t>(count));
  DSJ_TRY_STATUS(each_row(
      dataset, first, count, threads,
      [&](int, int64_t row, const Sample& one) { sizes[static_cast<size_t>(row)] = size_of(one); },
      cut));
  return sizes;
}

std::vector<int32_t> tokens_of(const std::vector<RowSize>& sizes) {
  std::vector<int32_t> tokens;
  tokens.reserve(sizes.size());
  for (const RowSize& size : sizes) tokens.push_back(size.tokens);
  return tokens;
}

}  // namespace dsj::data
