// Quantizes numbers to 8 or 4 bits with one scale per block. ZeRO++ sends these instead of weights
// and gradients.
//
// Arithmetic: the symmetric quantizer of DeepSpeed's CUDA sources. With b bits and the block's
// largest magnitude m, a code is x * 2^b / (2 m), rounded to nearest even and clamped to [-2^(b-1),
// 2^(b-1) - 1]. The transmitted scale is the reciprocal of that factor. If m is 0 or below 1e-36,
// all codes are 0. A block with infinity or NaN is dequantized to NaN, so that the check for
// overflows finds it.
//
// On a CPU these are loops on libtorch's threads. On other devices, and as the tests' oracle, they
// are libtorch operations. Nothing waits for a device. Internal to comm and zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "job/wire_blocks.h"

namespace dsj::comm {

/// Rows of whole blocks. Each row is contiguous; rows may be strided.
struct BlockCodes {
  at::Tensor codes;   ///< [rows, n * bits / 8] uint8; 4 bits: the first code is the low nibble
  at::Tensor scales;  ///< [rows, n / kWireBlock] fp32
};

/// Elements [first, first + n) of messages [rows, message_bytes(numel)] uint8.
BlockCodes part_of(const at::Tensor& messages, std::int64_t numel, int bits, std::int64_t first,
                   std::int64_t n);

/// The two implementations' interface. Numbers are fp32, bf16 or fp16; arithmetic is fp32.
class Blocks {
 public:
  virtual ~Blocks() = default;
  /// Quantizes x [rows, n]. Rows may be strided.
  virtual void quantize(const at::Tensor& x, int bits, const BlockCodes& to) const = 0;
  /// Dequantizes to out [rows, n], rounded to its type. Rows may be strided.
  virtual void dequantize(const BlockCodes& from, int bits, const at::Tensor& out) const = 0;
  /// out [n], contiguous: the sum of the dequantized rows in row order, rounded to its type once.
  virtual void sum(const BlockCodes& from, int bits, const at::Tensor& out) const = 0;
};

const Blocks& cpu_blocks();
const Blocks& aten_blocks();
inline const Blocks& blocks_of(const at::Tensor& tensor) {
  return tensor.is_cpu() ? cpu_blocks() : aten_blocks();
}

}  // namespace dsj::comm
