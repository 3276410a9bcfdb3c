#include "engine/data/batches/cut_rows.h"

#include <algorithm>

#include "common/check.h"

namespace dsj::data {

Batch cut_rows(const Batch& batch, int64_t length) {
  DSJ_CHECK(length >= 1);
  Batch cut;
  int64_t start = 0;
  for (const int64_t whole : batch.row_lengths) {
    const int64_t left = std::min(whole, length);
    const auto copy = [&](const std::vector<int64_t>& from, std::vector<int64_t>& to) {
      to.insert(to.end(), from.begin() + start, from.begin() + start + left);
    };
    copy(batch.input_ids, cut.input_ids);
    copy(batch.labels, cut.labels);
    cut.row_lengths.push_back(left);
    start += whole;
  }
  return cut;
}

int64_t targets(const Batch& batch) {
  int64_t count = 0, start = 0;
  for (const int64_t length : batch.row_lengths) {
    for (int64_t token = start + 1; token < start + length; ++token)
      count += batch.labels[static_cast<size_t>(token)] != kIgnoredLabel;
    start += length;
  }
  return count;
}

}  // namespace dsj::data
