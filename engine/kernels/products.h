// Matrix products on a CPU: torch-free, one source (products_impl.h) for all instruction sets. Sums
// are fp32. Products of 16-bit operands are exact in fp32, and a 16-bit result is rounded once.
// With bf16 units, bf16 values are multiplied in pairs; otherwise packing widens them.
//
// The order of a sum depends only on k: not on m, n, other rows, or threads. So fp32 products have
// the same bits on every CPU with fused multiply-add. Unlike in oneDNN, nothing is compiled per
// shape, so a new number of rows costs nothing.
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
  const void* bias = nullptr;  ///< may be null
  void* out = nullptr;
  int64_t out_row = 0;           ///< stride between rows of out, in elements; rows are contiguous
  Type out_type = Type::BF16;    ///< `type` or F32
  const void* addend = nullptr;  ///< of out_type: null, out itself, or not overlapping out
  int64_t addend_row = 0;
};

/// A product is split into down x across blocks: disjoint parts of `out`.
struct Blocks {
  int64_t rows = 0, columns = 0;  ///< of a block
  int64_t down = 0, across = 0;
  int64_t count() const { return down * across; }
};

struct ProductTable {
  const char* isa;  ///< "avx512bf16", "avx512", "avx2", "baseline"
  bool pairs;       ///< bf16 with the CPU's bf16 units
  bool fused;       ///< fp32 with fused multiply-add
  /// The blocks for `threads` threads. Each block packs its operands, so few large ones are best.
  Blocks (*blocks)(const Product& p, int64_t threads);
  /// Computes one block on the calling thread. Any thread, any order. Keeps 0.8 MB per thread.
  void (*block)(const Product& p, const Blocks& blocks, int64_t block);
};

/// The table for this process: of DSJ_ISA's instruction set or the best one; with bf16 units if the
/// CPU has them, unless DSJ_NATIVE_BF16 is 0.
const ProductTable& product_table();
/// The table of that name; nullptr if this CPU or build lacks it. For tests.
const ProductTable* product_table(const char* isa);

}  // namespace dsj::kernels
