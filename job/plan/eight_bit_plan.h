// 8-bit AdamW (training.optim: adamw_bnb_8bit, adamw_8bit, paged_adamw_8bit): which parameters have
// 8-bit moments, and the bytes that a rank keeps. The engine (engine/zero/methods/eight_bit.cc) and the
// memory model use it. The rules are those of bitsandbytes 0.50 and transformers 5. Pure.
#pragma once

#include <cstdint>

#include "job/dsconfig/config/resolved.h"
#include "job/layout/partition.h"

namespace dsj::plan {

/// Elements of a parameter that share a scale, counted from its first element. No block is split
/// between two ranks, so every stage and world size has the same blocks.
inline constexpr int64_t kEightBitBlock = 256;
/// Parameters with fewer elements keep 32-bit moments.
inline constexpr int64_t kEightBitLeast = 4096;
/// Elements whose moments an update converts to fp32 at a time.
inline constexpr int64_t kEightBitPiece = 1 << 20;

constexpr int64_t eight_bit_blocks(int64_t numel) {
  return (numel + kEightBitBlock - 1) / kEightBitBlock;
}

/// Whether the moments of a trained parameter have 8 bits: it is large enough and is not an
/// embedding. If not, they are fp32.
bool has_eight_bits(const layout::Slot& parameter);

/// The most bytes of both moments that a rank keeps. 0 for another optimizer.
int64_t eight_bit_bytes(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config);
/// The most bytes of an update's temporaries. `accelerator`: libtorch runs the operations.
int64_t eight_bit_scratch(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config,
                          bool accelerator);
/// fp32 numbers of both moments of a flat in a checkpoint: one per element, and the scales.
int64_t eight_bit_saved(const layout::FlatLayout& flat, const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
