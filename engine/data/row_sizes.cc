#include "engine/data/row_sizes.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "common/check.h"

namespace dsj::data {
namespace {

/// Rows that a thread takes at a time.
constexpr int64_t kBlock = 64;

RowSize size_of(const Sample& sample) {
  DSJ_CHECK(!sample.labels.empty());
  const auto targets = std::count_if(sample.labels.begin() + 1, sample.labels.end(),
                                     [](int32_t label) { return label != kIgnoredLabel; });
  return {static_cast<int32_t>(sample.input_ids.size()), static_cast<int32_t>(targets)};
}

/// What one thread met first that it could not read.
struct Bad {
  int64_t row;
  Error error;
};

}  // namespace

Result<std::vector<RowSize>> row_sizes(const Dataset& dataset, int64_t first, int64_t count,
                                       int threads) {
  DSJ_CHECK(first >= 0 && count >= 0 && first + count <= dataset.rows() && threads >= 1);
  std::vector<RowSize> sizes(static_cast<size_t>(count));
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  threads = static_cast<int>(std::clamp<int64_t>(blocks, 1, threads));
  std::vector<std::optional<Bad>> bad(static_cast<size_t>(threads));
  std::atomic<int64_t> next{0};
  const auto work = [&](std::optional<Bad>& mine) {
    for (int64_t block = next++; block < blocks && !mine; block = next++) {
      for (int64_t row = block * kBlock; row < std::min(count, (block + 1) * kBlock); ++row) {
        const auto sample = dataset.at(first + row);
        if (!sample) {
          mine = Bad{row, sample.error()};
          break;
        }
        sizes[static_cast<size_t>(row)] = size_of(*sample);
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i)
      others.emplace_back([&work, &mine = bad[static_cast<size_t>(i)]] { work(mine); });
    work(bad[0]);
  }
  const Bad* earliest = nullptr;  // blocks are taken in order, so no earlier row was left out
  for (const auto& one : bad)
    if (one && (!earliest || one->row < earliest->row)) earliest = &*one;
  if (earliest) return std::unexpected(earliest->error);
  return sizes;
}

std::vector<int32_t> tokens_of(const std::vector<RowSize>& sizes) {
  std::vector<int32_t> tokens;
  tokens.reserve(sizes.size());
  for (const RowSize& size : sizes) tokens.push_back(size.tokens);
  return tokens;
}

}  // namespace dsj::data
