// Sizes of ZeRO++'s messages: elements travel as codes of 8 or 4 bits, with one scale for each
// block of kWireBlock elements. Each parameter starts a new block, and no block is split between
// two ranks: such flats are aligned to blocks. engine/comm/blocks.h defines the codes. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dsj::wire {

/// Elements per fp32 scale. DeepSpeed's groups have 4,000 to 16,000; smaller ones round less. The
/// scales are 1/128 of the bytes of 8-bit codes.
inline constexpr int64_t kWireBlock = 512;

/// Bits of a code.
inline constexpr int kWeightBits = 8, kGradientBits = 4;

/// Bytes of the codes of `elements`, a whole number of blocks.
constexpr int64_t code_bytes(int64_t elements, int bits) {
  return elements * bits / 8;
}
/// Bytes of a message: codes, then scales, padded to 8 bytes.
constexpr int64_t message_bytes(int64_t elements, int bits) {
  return (code_bytes(elements, bits) + elements / kWireBlock * 4 + 7) / 8 * 8;
}

/// The most elements that an accelerator encodes or decodes at a time, and the bytes that this
/// takes at most: three fp32 buffers and two of 16-bit codes.
inline constexpr int64_t kPiece = 1 << 21;
constexpr int64_t scratch_bytes(int64_t elements) {
  return 16 * std::min(elements, kPiece);
}

}  // namespace dsj::wire
