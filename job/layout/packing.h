// Sizes of frozen 4-bit weights (QLoRA, Dettmers et al. 2023): bitsandbytes' blocks, and the bytes
// of a flat of such weights. Each parameter starts a new block and a new group.
// engine/optim/four_bit.h defines the codes. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "job/layout/partition.h"

namespace dsj::layout {

/// Scales that share a second-level scale (Packing::Nf4TwoLevels).
inline constexpr int64_t kPackedGroup = 256;

/// The position of a parameter's codes and scales among those of its flat.
struct PackedSlot {
  int64_t numel = 0;
  int64_t code = 0;  ///< first byte; a byte has two codes
  int64_t block = 0, blocks = 0;
  int64_t group = 0, groups = 0;
};
/// [slot]. `flat` must be packed.
std::vector<PackedSlot> packed_slots(const FlatLayout& flat);

/// Bytes of a flat's packed parameters.
struct PackedBytes {
  int64_t codes = 0;
  int64_t scales = 0;  ///< all levels
};
PackedBytes packed_bytes(const FlatLayout& flat);

/// Bytes of a flat that a rank keeps whole; `element`: bytes of an element that is not packed.
int64_t whole_bytes(const FlatLayout& flat, int64_t element);

/// Elements that an accelerator unpacks at a time, and the bytes of scratch for them: an index for
/// each byte, fp32 numbers, and their scales.
inline constexpr int64_t kUnpackedPiece = 1 << 22;
int64_t unpack_scratch(int64_t elements);

}  // namespace dsj::layout
