// Matrix products of 16-bit tensors on a CPU: torch-free, one text (products_impl.h) for all
// instruction sets. A term is exact in fp32, sums are fp32, and the result is rounded once. A table
// whose processor has bf16 units multiplies bf16 two by two; the others widen what they pack.
//
// The order of a sum depends on k alone: not on m or n, on the rows beside it, nor on threads.
// Nothing is compiled per shape, as oneDNN does, so a new number of rows costs nothing.
// Tested by: tests/engine/kernels/products_test.cc, tests/engine/models/gemm_test.cc
#pragma once

#include <cstdint>

#include "engine/kernels/port.h"

namespace dsj::kernels {

/// Element (r, c) is data[r * row + c * column]; row or column is 1.
struct Operand {
  const void* data = nullptr;
  int64_t row = 0, column = 0;
};

/// out [m, n] (+)= a [m, k] b [k, n] + bias [n]. With `accumulate` out's value is added before the
/// one rounding.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Type type = Type::BF16;  ///< of a, b and bias: BF16 or F16
  Operand a, b;
  const void* bias = nullptr;  ///< null: none
  void* out = nullptr;
  int64_t out_row = 0;  ///< elements from one row of out to the next; neighbours are adjacent
  Type out_type = Type::BF16;  ///< `type` or F32
  bool accumulate = false;
};

/// A product consists of blocks of this size: parts of `out` that do not overlap.
inline constexpr int64_t kBlockRows = 240, kBlockColumns = 192;
inline int64_t product_blocks(const Product& p) {
  const int64_t down = (p.m + kBlockRows - 1) / kBlockRows;
  return down * ((p.n + kBlockColumns - 1) / kBlockColumns);
}

struct ProductTable {
  const char* isa;  ///< "avx512bf16", "avx512", "avx2", "baseline"
  bool pairs;       ///< bf16 by the processor's bf16 units
  /// Computes one block, on the calling thread. Any thread, any order. Keeps 0.7 MB per thread.
  void (*block)(const Product& p, int64_t block);
};

/// The table for this process: of DSJ_ISA's instruction set or the best; with bf16 units where the
/// processor has them, unless DSJ_NATIVE_BF16 is 0.
const ProductTable& product_table();
/// The table of that name; nullptr: this processor or build lacks it. For tests.
const ProductTable* product_table(const char* isa);

}  // namespace dsj::kernels
