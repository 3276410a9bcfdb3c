#include "engine/data/each_row.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "common/check.h"

namespace dsj::data {
namespace {

/// Number of rows that a thread takes at a time.
constexpr int64_t kBlock = 64;

/// The first row that a thread could not read.
struct Bad {
  int64_t row;
  Error error;
};

}  // namespace

Status each_row(const Dataset& dataset, int64_t first, int64_t count, int threads,
                const std::function<void(int, int64_t, const Sample&)>& use, RowCut cut) {
  DSJ_CHECK(first >= 0 && count >= 0 && first + count <= dataset.rows() && threads >= 1);
  const int64_t blocks = (count + kBlock - 1) / kBlock;
  threads = static_cast<int>(std::clamp<int64_t>(blocks, 1, threads));
  std::vector<std::optional<Bad>> bad(static_cast<size_t>(threads));
  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    std::optional<Bad>& mine = bad[static_cast<size_t>(thread)];
    for (int64_t block = next++; block < blocks && !mine; block = next++) {
      for (int64_t row = block * kBlock; row < std::min(count, (block + 1) * kBlock); ++row) {
        const auto sample = dataset.read_row(first + row, cut);
        if (!sample) {
          mine = Bad{row, sample.error()};
          break;
        }
        use(thread, row, *sample);
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back([&work, i] { work(i); });
    work(0);
  }
  const Bad* earliest = nullptr;  // blocks are taken in order, so all earlier rows were read
  for (const auto& one : bad)
    if (one && (!earliest || one->row < earliest->row)) earliest = &*one;
  if (earliest) return std::unexpected(earliest->error);
  return {};
}

}  // namespace dsj::data
