// 8-bit AdamW (training.optim: adamw_bnb_8bit, adamw_8bit, paged_adamw_8bit): of which parameters the
// moments are kept in 8 bits, and what a rank keeps. The engine (engine/zero/eight_bit.cc) and the
// memory model go by it. The rule is that of bitsandbytes 0.50 and of transformers 5's Trainer. Pure.
#pragma once

#include <cstdint>

#include "job/dsconfig/resolved.h"
#include "job/layout/partition.h"

namespace dsj::plan {

/// Elements of a parameter that share a scale, from its first element on. No block is cut between two
/// ranks, so that every stage and world size has the same blocks.
inline constexpr int64_t kEightBitBlock = 256;
/// Parameters with fewer elements keep 32-bit moments.
inline constexpr int64_t kEightBitLeast = 4096;
/// Elements whose moments an update has in fp32 at a time.
inline constexpr int64_t kEightBitPiece = 1 << 20;

constexpr int64_t eight_bit_blocks(int64_t numel) {
  return (numel + kEightBitBlock - 1) / kEightBitBlock;
}

/// Whether the moments of a trained parameter are kept in 8 bits: it is large enough, and no table
/// of an embedding. False: they are fp32.
bool has_eight_bits(const layout::Slot& parameter);

/// Bytes of both moments that a rank keeps, at most. 0: the optimizer is another one.
int64_t eight_bit_bytes(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config);
/// Bytes of an update's temporary tensors, at most. `accelerator`: its operations are libtorch's.
int64_t eight_bit_scratch(const layout::FlatPlan& plan, const dsconfig::ResolvedConfig& config,
                          bool accelerator);
/// fp32 numbers of both moments of a flat in a checkpoint: its elements, and the blocks' scales.
int64_t eight_bit_saved(const layout::FlatLayout& flat, const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
