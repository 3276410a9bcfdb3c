// Matrix products on a CPU: torch-free, one text (products_impl.h) for all instruction sets. Sums
// are fp32. A term of 16-bit operands is exact in fp32, and a 16-bit result is rounded once. A table
// whose processor has bf16 units multiplies bf16 two by two; the others widen what they pack.
//
// The order of a sum depends on k alone: not on m or n, on the rows beside it, nor on threads. So
// fp32 products have the same bits on every processor with fused multiply-add.
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

/// out [m, n] = a [m, k] b [k, n] + bias [n] + addend [m, n]; k is 1 or more.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  Type type = Type::BF16;  ///< of a, b and bias
  Operand a, b;
  const void* bias = nullptr;  ///< null: none
  void* out = nullptr;
  int64_t out_row = 0;  ///< elements from one row of out to the next; neighbours are adjacent
  Type out_type = Type::BF16;    ///< `type` or F32
  const void* addend = nullptr;  ///< of out_type: null, out itself, or nowhere beside it
  int64_t addend_row = 0;
};

/// A product consists of down x across blocks: parts of `out` that do not overlap.
struct Blocks {
  int64_t rows = 0, columns = 0;  ///< of a block
  int64_t down = 0, across = 0;
  int64_t count() const { return down * across; }
};

struct ProductTable {
  const char* isa;  ///< "avx512bf16", "avx512", "avx2", "baseline"
  bool pairs;       ///< bf16 by the processor's bf16 units
  bool fused;       ///< fp32 terms are added without a rounding of their own
  /// Blocks for so many threads. A block's operands are packed for it, so few large ones are best.
  Blocks (*blocks)(const Product& p, int64_t threads);
  /// Computes one block, on the calling thread. Any thread, any order. Keeps 0.8 MB per thread.
  void (*block)(const Product& p, const Blocks& blocks, int64_t block);
};

/// The table for this process: of DSJ_ISA's instruction set or the best; with bf16 units where the
/// processor has them, unless DSJ_NATIVE_BF16 is 0.
const ProductTable& product_table();
/// The table of that name; nullptr: this processor or build lacks it. For tests.
const ProductTable* product_table(const char* isa);

}  // namespace dsj::kernels
