// ZeRO++'s messages as numbers: elements travel as codes of 8 or 4 bits, with one scale for each block of
// kWireBlock elements. Blocks begin anew with each parameter, and no block is cut between two ranks:
// flats that travel so are aligned to blocks. What the codes mean is engine/comm/blocks.h's. Pure.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dsj::wire {

/// Elements with one fp32 scale. DeepSpeed's groups have 4,000 to 16,000; smaller ones round less, and
/// their scales are 1/128 of the codes of 8 bits.
inline constexpr int64_t kWireBlock = 512;

/// Bits of a code.
inline constexpr int kWeightBits = 8, kGradientBits = 4;

/// Bytes of the codes of so many elements, which are whole blocks.
constexpr int64_t code_bytes(int64_t elements, int bits) {
  return elements * bits / 8;
}
/// Bytes of their message: codes, then scales, in whole words of 8 bytes.
constexpr int64_t message_bytes(int64_t elements, int bits) {
  return (code_bytes(elements, bits) + elements / kWireBlock * 4 + 7) / 8 * 8;
}

/// Elements that an accelerator codes or reads at a time, and the bytes that this takes, at most: numbers
/// in fp32 three times, codes of 16 bits twice.
inline constexpr int64_t kPiece = 1 << 21;
constexpr int64_t scratch_bytes(int64_t elements) {
  return 16 * std::min(elements, kPiece);
}

}  // namespace dsj::wire
