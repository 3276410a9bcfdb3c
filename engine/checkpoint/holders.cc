#include "engine/checkpoint/holders.h"

#include <algorithm>
#include <tuple>

namespace dsj::checkpoint {

Result<std::vector<std::vector<Holders>>> holders_of(std::span<const Extent> extents,
                                                     std::vector<HeldRange> ranges,
                                                     const std::string& where) {
  std::ranges::sort(ranges, {}, [](const HeldRange& range) {
    return std::tie(range.extent, range.offset, range.length, range.part);
  });
  std::vector<std::vector<Holders>> all(extents.size());
  auto range = ranges.begin();
  for (size_t i = 0; i < extents.size(); ++i) {
    const Extent& extent = extents[i];
    std::vector<Holders>& holders = all[i];
    int64_t end = 0;
    for (; range != ranges.end() && range->extent == int32_t(i); ++range) {
      if (range->length == 0) continue;
      if (range->offset != end) {
        return fail(ErrorKind::Internal,
                    extent.state + " of " + extent.param + ": elements from " +
                        std::to_string(std::min(range->offset, end)) + " on are " +
                        (range->offset < end ? "written twice" : "missing"),
                    where);
      }
      end += range->length;
      const bool goes_on = !holders.empty() && holders.back().length == range->length &&
                           holders.back().part + holders.back().count == range->part;
      if (goes_on)
        ++holders.back().count;
      else
        holders.push_back({.offset = range->offset, .length = range->length, .part = range->part});
    }
    if (end != extent.elements) {
      return fail(ErrorKind::Internal,
                  extent.state + " of " + extent.param + ": " + std::to_string(end) + " of " +
                      std::to_string(extent.elements) + " elements are written",
                  where);
    }
  }
  return all;
}

int part_of(std::span<const Holders> holders, int64_t offset) {
  const auto at = std::ranges::upper_bound(holders, offset, {}, &Holders::offset) - 1;
  return at->part + int((offset - at->offset) / at->length);
}

bool covers(std::span<const Holders> holders, int64_t elements, int world) {
  int64_t end = 0;
  for (const Holders& one : holders) {
    if (one.offset != end || one.length <= 0 || one.part < 0 || one.count < 1) return false;
    if (one.part >= world || one.count > world - one.part) return false;
    if (one.length > (elements - end) / one.count) return false;
    end = one.end();
  }
  return end == elements;
}

}  // namespace dsj::checkpoint
