#include "engine/models/row_bounds.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::models {

RowBounds::RowBounds(std::span<const int64_t> lengths, at::Device place,
                     std::span<const int64_t> firsts) {
  DSJ_CHECK(firsts.empty() || firsts.size() == lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t length = lengths[i], first = firsts.empty() ? 0 : firsts[i];
    DSJ_CHECK(length >= 1 && first >= 0);
    if (runs_.empty() || runs_.back().length != length || runs_.back().first != first) {
      runs_.push_back({static_cast<int64_t>(i), 1, tokens(), length, first});
    } else {
      ++runs_.back().rows;
    }
    starts_.push_back(tokens() + length);
    positions_end_ = std::max(positions_end_, first + length);
    longest_ = std::max(longest_, length);
  }
  const at::Tensor positions = at::empty({tokens()}, at::kLong);
  auto* next = positions.data_ptr<int64_t>();
  for (const Run& run : runs_) {
    for (int64_t row = 0; row < run.rows; ++row, next += run.length)
      std::iota(next, next + run.length, run.first);
  }
  positions_ = device::upload(positions, place);
  DSJ_CHECK(tokens() <= std::numeric_limits<int32_t>::max());
  starts_there_ = device::upload(at::tensor(starts_, at::kLong).to(at::kInt), place);
}

}  // namespace dsj::models
