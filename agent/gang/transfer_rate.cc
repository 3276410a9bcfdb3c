#include "agent/gang/transfer_rate.h"

#include <algorithm>

namespace dsj::agent {
namespace {

constexpr size_t kSlicesFew = 8;

int64_t bytes_per_second(int64_t bytes, int64_t microseconds) {
  const double seconds = static_cast<double>(std::max<int64_t>(1, microseconds)) * 1e-6;
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(bytes) / seconds));
}

}  // namespace

int64_t rate_of(const Transfer& transfer) {
  if (transfer.slices.size() < kSlicesFew) {
    return bytes_per_second(transfer.bytes, transfer.microseconds);
  }
  std::vector<int64_t> slices = transfer.slices;
  const auto middle = slices.begin() + static_cast<std::ptrdiff_t>(slices.size() / 2);
  std::ranges::nth_element(slices, middle);
  return bytes_per_second(transfer.slice_bytes, *middle);
}

}  // namespace dsj::agent
