#include "engine/data/batch.h"

#include <algorithm>

#include "common/check.h"

namespace dsj::data {

Batch collate(std::span<const Sample> samples, int64_t pad_id) {
  DSJ_CHECK(!samples.empty());
  Batch batch{.rows = std::ssize(samples)};
  for (const Sample& sample : samples) {
    DSJ_CHECK(!sample.input_ids.empty() && sample.input_ids.size() == sample.labels.size());
    batch.row_lengths.push_back(std::ssize(sample.input_ids));
    batch.tokens += std::ssize(sample.input_ids);
    batch.targets += std::count_if(sample.labels.begin() + 1, sample.labels.end(),
                                   [](int32_t label) { return label != kIgnoredLabel; });
  }
  batch.length = std::ranges::max(batch.row_lengths);
  const auto size = static_cast<std::size_t>(batch.rows * batch.length);
  batch.input_ids.assign(size, pad_id);
  batch.labels.assign(size, kIgnoredLabel);
  int64_t start = 0;
  for (const Sample& sample : samples) {
    std::ranges::copy(sample.input_ids, batch.input_ids.begin() + start);
    std::ranges::copy(sample.labels, batch.labels.begin() + start);
    start += batch.length;
  }
  return batch;
}

}  // namespace dsj::data
