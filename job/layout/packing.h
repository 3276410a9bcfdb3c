// Frozen weights in 4 bits (QLoRA, Dettmers et al. 2023) as numbers: bitsandbytes' blocks, and the bytes
// that a flat of such weights takes. Blocks and groups begin anew with each parameter. What the codes
// mean is engine/optim/four_bit.h's. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "job/layout/partition.h"

namespace dsj::layout {

/// Scales with one scale (Packing::Nf4TwoLevels).
inline constexpr int64_t kPackedGroup = 256;

/// Where a parameter's codes and scales lie among those of its flat.
struct PackedSlot {
  int64_t numel = 0;
  int64_t code = 0;  ///< first byte: two codes each
  int64_t block = 0, blocks = 0;
  int64_t group = 0, groups = 0;
};
/// [slot]. The flat is packed.
std::vector<PackedSlot> packed_slots(const FlatLayout& flat);

/// What a flat's packed parameters take, in bytes.
struct PackedBytes {
  int64_t codes = 0;
  int64_t scales = 0;  ///< all levels
};
PackedBytes packed_bytes(const FlatLayout& flat);

/// Bytes of a flat that a rank keeps whole; `element`: of an element that is not packed.
int64_t whole_bytes(const FlatLayout& flat, int64_t element);

/// Elements that an accelerator unpacks at a time, and the bytes that it needs for them beside the
/// result: an index for each byte, numbers in fp32, and their scales.
inline constexpr int64_t kUnpackedPiece = 1 << 22;
int64_t unpack_scratch(int64_t elements);

}  // namespace dsj::layout
