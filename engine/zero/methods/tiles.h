// Splits long runs of elements into tiles, for updates made of several operations in sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "engine/zero/flat/update.h"

namespace dsj::zero {

/// The number of elements whose temporary tensors fit in a core's cache.
inline constexpr std::int64_t kTile = 1 << 14;

/// Calls f(first, count) for consecutive parts of n elements: tiles on a CPU. On another device it
/// calls f once for all elements, because a launch costs more than the memory.
template <typename F>
void for_tiles(at::Device device, std::int64_t n, F f) {
  const std::int64_t tile = device.is_cpu() ? kTile : std::max<std::int64_t>(n, 1);
  for (std::int64_t first = 0; first < n; first += tile) f(first, std::min(tile, n - first));
}

/// Elements [first, first + count) of a span without LAMB's tensors. Views.
class SpanPart {
 public:
  SpanPart(const UpdateSpan& whole, std::int64_t first, std::int64_t count) {
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.narrow(0, first, count) : at::Tensor();
    };
    for (std::size_t i = 0; i < whole.states.size(); ++i) states_[i] = part(whole.states[i]);
    span_ = {part(whole.p), part(whole.grad), std::span(states_).first(whole.states.size()),
             part(whole.low)};
  }
  SpanPart(const SpanPart&) = delete;
  SpanPart& operator=(const SpanPart&) = delete;
  const UpdateSpan& span() const { return span_; }

 private:
  /// As many as an optimizer can have.
  std::array<at::Tensor, std::extent_v<decltype(dsconfig::Optimizer::states)>> states_;
  UpdateSpan span_;
};

}  // namespace dsj::zero
