#include "job/layout/packing.h"

#include <algorithm>

#include "common/check.h"

namespace dsj::layout {
namespace {

int64_t parts(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

}  // namespace

std::vector<PackedSlot> packed_slots(const FlatLayout& flat) {
  DSJ_CHECK(flat.packing() != Packing::None);
  std::vector<PackedSlot> slots;
  int64_t group = 0;
  for (const Slot& slot : flat.slots()) {
    const int64_t blocks = parts(slot.numel, kPackedBlock), groups = parts(blocks, kPackedGroup);
    slots.push_back(
        {slot.numel, slot.offset / 2, slot.offset / kPackedBlock, blocks, group, groups});
    group += groups;
  }
  return slots;
}

PackedBytes packed_bytes(const FlatLayout& flat) {
  const auto slots = packed_slots(flat);
  const int64_t blocks = flat.numel() / kPackedBlock;
  const int64_t groups = slots.back().group + slots.back().groups;
  const auto means = static_cast<int64_t>(slots.size());
  return {flat.numel() / 2,
          flat.packing() == Packing::Nf4 ? 4 * blocks : blocks + 4 * (groups + means)};
}

int64_t whole_bytes(const FlatLayout& flat, int64_t element) {
  if (flat.packing() == Packing::None) return flat.numel() * element;
  const PackedBytes packed = packed_bytes(flat);
  return packed.codes + packed.scales;
}

int64_t unpack_scratch(int64_t elements) {
  const int64_t piece = std::min(elements, kUnpackedPiece);
  return 6 * piece + 16 * parts(piece, kPackedBlock);
}

}  // namespace dsj::layout
