// Numbers as codes of 8 or 4 bits with one scale per block: what ZeRO++ sends in place of weights and
// gradients.
//
// Arithmetic: the symmetric quantizer of DeepSpeed's CUDA sources. With b bits and the
// block's largest magnitude m, a code is x * 2^b / (2 m), rounded to nearest even and held within
// [-2^(b-1), 2^(b-1) - 1]; the scale that travels is the reciprocal of that factor. A block of zeros,
// or with m below 1e-36, has codes of 0. A block with an infinity or a NaN comes back as NaN, so that
// the search for overflows finds it.
//
// On a CPU these are loops over libtorch's threads. On any other device, and in tests as their oracle,
// they are libtorch's operations. Nothing waits for a device. Internal to comm and zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "job/wire_blocks.h"

namespace dsj::comm {

/// Rows of whole blocks. Rows may lie apart, a row's elements do not.
struct BlockCodes {
  at::Tensor codes;   ///< [rows, n * bits / 8] uint8; of 4 bits, the first of two is the lower half
  at::Tensor scales;  ///< [rows, n / kWireBlock] fp32
};

/// Elements [first, first + n) of messages [rows, message_bytes(numel)] uint8.
BlockCodes part_of(const at::Tensor& messages, std::int64_t numel, int bits, std::int64_t first,
                   std::int64_t n);

/// The interface to the two. Numbers are fp32, bf16 or fp16, and are computed in fp32.
class Blocks {
 public:
  virtual ~Blocks() = default;
  /// x [rows, n] as codes. Rows may lie apart.
  virtual void quantize(const at::Tensor& x, int bits, const BlockCodes& to) const = 0;
  /// out [rows, n]: the numbers that the codes stand for, rounded to its type. Rows may lie apart.
  virtual void dequantize(const BlockCodes& from, int bits, const at::Tensor& out) const = 0;
  /// out [n], contiguous: the sum over the rows, in their order, rounded to its type once.
  virtual void sum(const BlockCodes& from, int bits, const at::Tensor& out) const = 0;
};

const Blocks& cpu_blocks();
const Blocks& aten_blocks();
inline const Blocks& blocks_of(const at::Tensor& tensor) {
  return tensor.is_cpu() ? cpu_blocks() : aten_blocks();
}

}  // namespace dsj::comm
