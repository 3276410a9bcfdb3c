#include "engine/deepspeed/ranges.h"

#include <algorithm>

namespace dsj::deepspeed {

void append(FlatVector& flat, int64_t begin, const weights::TensorInfo& tensor) {
  if (tensor.elements > 0) flat.push_back({begin, tensor.elements, tensor.begin, tensor.dtype});
}

std::vector<Stretch> cut(const FlatVector& flat, int64_t at, int64_t count) {
  std::vector<Stretch> parts;
  auto stretch = std::ranges::upper_bound(
      flat, at, {}, [](const Stretch& one) { return one.begin + one.elements; });
  for (; stretch != flat.end() && stretch->begin < at + count; ++stretch) {
    Stretch part = *stretch;
    part.begin = std::max(at, stretch->begin);
    part.elements = std::min(at + count, stretch->begin + stretch->elements) - part.begin;
    part.byte += (part.begin - stretch->begin) * weights::dtype_bytes(stretch->dtype);
    parts.push_back(part);
  }
  return parts;
}

Dealt whole(int64_t elements, size_t file, FlatOf flat, int64_t at) {
  return {.elements = elements,
          .first = file,
          .shift = 0,
          .each = elements,
          .flat = std::move(flat),
          .base = at};
}

std::vector<Share> shares_of(const Dealt& dealt, int64_t offset, int64_t count) {
  std::vector<Share> shares;
  while (count > 0) {
    const int64_t place = dealt.shift + offset, within = place % dealt.each;
    const int64_t some = std::min(count, dealt.each - within);
    shares.push_back({dealt.first + size_t(place / dealt.each), offset, some, dealt.base + within});
    offset += some;
    count -= some;
  }
  return shares;
}

std::optional<Share> share_in(const Dealt& dealt, size_t file) {
  if (dealt.elements == 0 || file < dealt.first) return std::nullopt;
  const auto number = static_cast<int64_t>(file - dealt.first);
  // The tensor's last file bounds the product below.
  if (number > (dealt.shift + dealt.elements - 1) / dealt.each) return std::nullopt;
  const int64_t begin = number * dealt.each - dealt.shift, from = std::max<int64_t>(0, begin);
  const int64_t end = std::min(dealt.elements, begin + dealt.each);
  if (from >= end) return std::nullopt;
  return Share{file, from, end - from, dealt.base + from - begin};
}

}  // namespace dsj::deepspeed
