#include "engine/models/ops/row_bounds.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::models {

void RowBounds::add_row(int64_t length, int64_t first) {
  DSJ_CHECK(length >= 1 && first >= 0);
  if (runs_.empty() || runs_.back().length != length || runs_.back().first != first) {
    runs_.push_back({rows(), 1, tokens(), length, first});
  } else {
    ++runs_.back().rows;
  }
  starts_.push_back(tokens() + length);
  longest_ = std::max(longest_, length);
}

RowBounds::RowBounds(std::span<const int64_t> lengths, const std::vector<int64_t>& positions,
                     at::Device device) {
  for (const int64_t length : lengths) add_row(length, 0);
  DSJ_CHECK(tokens() == std::ssize(positions));
  for (const int64_t position : positions) positions_end_ = std::max(positions_end_, position + 1);
  positions_ = device::upload(at::tensor(positions), device);
  starts_there_ = device::upload_starts(starts_, device);
}

RowBounds::RowBounds(std::span<const int64_t> lengths, at::Device device,
                     std::span<const int64_t> firsts) {
  DSJ_CHECK(firsts.empty() || firsts.size() == lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t first = firsts.empty() ? 0 : firsts[i];
    add_row(lengths[i], first);
    positions_end_ = std::max(positions_end_, first + lengths[i]);
  }
  const at::Tensor positions = at::empty({tokens()}, at::kLong);
  auto* next = positions.data_ptr<int64_t>();
  for (const Run& run : runs_) {
    for (int64_t row = 0; row < run.rows; ++row, next += run.length)
      std::iota(next, next + run.length, run.first);
  }
  positions_ = device::upload(positions, device);
  starts_there_ = device::upload_starts(starts_, device);
}

}  // namespace dsj::models
