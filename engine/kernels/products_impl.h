// The one text of the 16-bit products, compiled once per instruction set: each products_*.cc
// defines DSJ_PRODUCTS_ISA and includes it.
//
// A block of `out` is summed in fp32 scratch, one stretch of k after the other. Both operands of a
// stretch are packed in 32-bit cells: an fp32 value, or with bf16 units two bf16 values that are
// neighbours along k. The inner loop keeps kTile rows of kPanel columns in registers, loads a row
// of b's panel and multiplies it with one cell of each of a's rows. Scratch stays in a core's L2.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "engine/kernels/element.h"
#include "engine/kernels/products.h"
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace dsj::kernels {
namespace {

#if defined(__AVX512F__)
using Vector = float __attribute__((vector_size(64), may_alias));
inline constexpr int kTile = 8, kVectors = 3;  // 24 sums, 3 of b, 1 of a: of 32 registers
#elif defined(__AVX2__)
using Vector = float __attribute__((vector_size(32), may_alias));
inline constexpr int kTile = 6, kVectors = 2;  // 12 sums, 2 of b, 1 of a: of 16 registers
#else
using Vector = float __attribute__((vector_size(16), may_alias));
inline constexpr int kTile = 6, kVectors = 2;
#endif
inline constexpr int kLanesOf = sizeof(Vector) / sizeof(float);
inline constexpr int kPanel = kLanesOf * kVectors;
/// Rows and columns of a block, and cells of a stretch of k. Multiples of every kTile and kPanel.
inline constexpr int64_t kRows = kBlockRows, kColumns = kBlockColumns, kCells = 256;
/// Cells from one row of packed a to the next: apart in the cache's sets.
inline constexpr int64_t kStride = kCells + 16;
static_assert(kRows % kTile == 0 && kColumns % kPanel == 0);

struct Scratch {
  alignas(64) uint32_t a[kRows * kStride];
  alignas(64) uint32_t b[kColumns * kCells];
  alignas(64) float sums[kRows * kColumns];
};
inline Scratch& scratch() {
  thread_local const std::unique_ptr<Scratch> mine(new Scratch);
  return *mine;
}

/// Cells are fp32 values.
template <typename T>
struct Floats {
  using Element = T;
  static constexpr int64_t kDeep = 1;  ///< values of k in a cell
  /// Cell `cell` of a row whose values of k are neighbours.
  static uint32_t along(const T* row, int64_t cell, int64_t) {
    return std::bit_cast<uint32_t>(load(row, cell));
  }
  /// Cell `cell` of column i, of columns that are neighbours.
  static uint32_t across(const T* first, int64_t stride, int64_t cell, int64_t, int64_t i) {
    return std::bit_cast<uint32_t>(load(first + cell * stride, i));
  }
  static Vector add(Vector sum, uint32_t a, Vector b) { return sum + std::bit_cast<float>(a) * b; }
};

#ifdef __AVX512BF16__
/// Cells are two bf16 values, the first in the low half; a last odd one is beside a zero.
struct Pairs {
  using Element = Bf16;
  static constexpr int64_t kDeep = 2;
  static uint32_t along(const Bf16* row, int64_t cell, int64_t depth) {
    if (2 * cell + 1 >= depth) return row[2 * cell].bits;
    uint32_t both;
    std::memcpy(&both, row + 2 * cell, sizeof both);
    return both;
  }
  static uint32_t across(const Bf16* first, int64_t stride, int64_t cell, int64_t depth,
                         int64_t i) {
    const Bf16* const low = first + 2 * cell * stride;
    const uint32_t high = 2 * cell + 1 < depth ? low[stride + i].bits : 0;
    return low[i].bits | high << 16;
  }
  static Vector add(Vector sum, uint32_t a, Vector b) {
    return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(a)),
                                    (__m512bh)b);
  }
};
#endif

/// A stretch of k: `depth` values from `first` on.
struct Stretch {
  int64_t first, depth, cells;
};

template <typename T>
const T* at(const Operand& operand, int64_t row, int64_t column) {
  return static_cast<const T*>(operand.data) + row * operand.row + column * operand.column;
}

/// Where packed a has cell c of row r of a tile: tile[r * row + c * cell].
struct PackedRows {
  int64_t tile, row, cell;
};

/// Rows [first, first + count) of a, padded to whole tiles with zeros.
template <typename Unit>
PackedRows pack_rows(const Operand& a, int64_t first, int64_t count, const Stretch& k,
                     uint32_t* out) {
  using T = typename Unit::Element;
  const int64_t padded = (count + kTile - 1) / kTile * kTile;
  if (a.column == 1) {
    for (int64_t r = 0; r < padded; ++r) {
      uint32_t* const to = out + r * kStride;
      if (r >= count) {
        std::fill_n(to, k.cells, 0u);
        continue;
      }
      const T* const row = at<T>(a, first + r, k.first);
      const int64_t whole = k.depth / Unit::kDeep;
      for (int64_t c = 0; c < whole; ++c) to[c] = Unit::along(row, c, whole * Unit::kDeep);
      if (whole < k.cells) to[whole] = Unit::along(row, whole, k.depth);
    }
    return {kTile * kStride, kStride, 1};
  }
  for (int64_t tile = 0; tile < padded; tile += kTile) {
    const T* const corner = at<T>(a, first + tile, k.first);
    const int64_t here = std::min<int64_t>(kTile, count - tile);
    uint32_t* to = out + tile * k.cells;
    for (int64_t c = 0; c < k.cells; ++c, to += kTile) {
      if (here == kTile) {
        for (int64_t i = 0; i < kTile; ++i) to[i] = Unit::across(corner, a.column, c, k.depth, i);
        continue;
      }
      for (int64_t i = 0; i < kTile; ++i)
        to[i] = i < here ? Unit::across(corner, a.column, c, k.depth, i) : 0;
    }
  }
  return {kTile * k.cells, 1, kTile};
}

/// Columns [first, first + count) of b as panels [cells, kPanel], padded with zeros.
template <typename Unit>
void pack_columns(const Operand& b, int64_t first, int64_t count, const Stretch& k, uint32_t* out) {
  using T = typename Unit::Element;
  for (int64_t panel = 0; panel < count; panel += kPanel, out += kPanel * k.cells) {
    const int64_t here = std::min<int64_t>(kPanel, count - panel);
    const T* const corner = at<T>(b, k.first, first + panel);
    if (here < kPanel) std::fill_n(out, kPanel * k.cells, 0u);
    if (b.column == 1) {
      for (int64_t c = 0; c < k.cells; ++c) {
        uint32_t* const to = out + c * kPanel;
        if (here == kPanel) {
          for (int64_t i = 0; i < kPanel; ++i) to[i] = Unit::across(corner, b.row, c, k.depth, i);
        } else {
          for (int64_t i = 0; i < here; ++i) to[i] = Unit::across(corner, b.row, c, k.depth, i);
        }
      }
      continue;
    }
    constexpr int64_t kLine = 16;  // cells that are read of a column before the next column
    for (int64_t c = 0; c < k.cells; c += kLine) {
      const int64_t end = std::min(c + kLine, k.cells);
      for (int64_t i = 0; i < here; ++i) {
        const T* const column = corner + i * b.column;
        for (int64_t cell = c; cell < end; ++cell)
          out[cell * kPanel + i] = Unit::along(column, cell, k.depth);
      }
    }
  }
}

/// sums [kTile, kPanel] (+)= a tile of a times a panel of b.
template <typename Unit, bool kFirst>
__attribute__((noinline)) void multiply(const uint32_t* a, int64_t row, int64_t cell,
                                        const uint32_t* b, int64_t cells, float* sums) {
  Vector s[kTile][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kTile; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v)
      s[r][v] = kFirst ? Vector{} : *(const Vector*)(sums + r * kColumns + v * kLanesOf);
  for (int64_t c = 0; c < cells; ++c, a += cell, b += kPanel) {
    Vector of_b[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) of_b[v] = *(const Vector*)(b + v * kLanesOf);
#pragma GCC unroll 8
    for (int r = 0; r < kTile; ++r)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) s[r][v] = Unit::add(s[r][v], a[r * row], of_b[v]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTile; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) *(Vector*)(sums + r * kColumns + v * kLanesOf) = s[r][v];
}

/// A row of out: sums, bias and what was there, rounded once.
template <typename T, typename Out>
void finish(const float* sums, const T* bias, bool accumulate, Out* out, int64_t n) {
  if (!bias && !accumulate) {
    for (int64_t i = 0; i < n; ++i) store(out, i, sums[i]);
  } else if (!bias) {
    for (int64_t i = 0; i < n; ++i) store(out, i, sums[i] + load(out, i));
  } else {
    for (int64_t i = 0; i < n; ++i)
      store(out, i, sums[i] + load(bias, i) + (accumulate ? load(out, i) : 0.0f));
  }
}

template <typename Unit>
void product_block(const Product& p, int64_t block) {
  using T = typename Unit::Element;
  const int64_t across = (p.n + kColumns - 1) / kColumns;
  const int64_t row = block / across * kRows, column = block % across * kColumns;
  const int64_t rows = std::min(kRows, p.m - row), columns = std::min(kColumns, p.n - column);
  Scratch& s = scratch();
  for (int64_t first = 0; first < p.k; first += kCells * Unit::kDeep) {
    const int64_t depth = std::min(kCells * Unit::kDeep, p.k - first);
    const Stretch k{first, depth, (depth + Unit::kDeep - 1) / Unit::kDeep};
    const PackedRows a = pack_rows<Unit>(p.a, row, rows, k, s.a);
    pack_columns<Unit>(p.b, column, columns, k, s.b);
    const auto kernel = first == 0 ? multiply<Unit, true> : multiply<Unit, false>;
    for (int64_t r = 0; r < rows; r += kTile)
      for (int64_t c = 0; c < columns; c += kPanel)
        kernel(s.a + r / kTile * a.tile, a.row, a.cell, s.b + c * k.cells, k.cells,
               s.sums + r * kColumns + c);
  }
  const T* const bias = p.bias ? static_cast<const T*>(p.bias) + column : nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    const float* const sums = s.sums + r * kColumns;
    const int64_t place = (row + r) * p.out_row + column;
    if (p.out_type == Type::F32)
      finish(sums, bias, p.accumulate, static_cast<float*>(p.out) + place, columns);
    else
      finish(sums, bias, p.accumulate, static_cast<T*>(p.out) + place, columns);
  }
}

void any_block(const Product& p, int64_t block) {
  if (p.k == 0) return;
  if (p.type == Type::F16) return product_block<Floats<Half>>(p, block);
#ifdef __AVX512BF16__
  product_block<Pairs>(p, block);
#else
  product_block<Floats<Bf16>>(p, block);
#endif
}

#ifdef __AVX512BF16__
inline constexpr bool kPairs = true;
#else
inline constexpr bool kPairs = false;
#endif

}  // namespace

#define DSJ_PRODUCTS_NAME2(isa) products_##isa
#define DSJ_PRODUCTS_NAME(isa) DSJ_PRODUCTS_NAME2(isa)
#define DSJ_PRODUCTS_TEXT2(isa) #isa
#define DSJ_PRODUCTS_TEXT(isa) DSJ_PRODUCTS_TEXT2(isa)
extern const ProductTable DSJ_PRODUCTS_NAME(DSJ_PRODUCTS_ISA);
const ProductTable DSJ_PRODUCTS_NAME(DSJ_PRODUCTS_ISA) = {DSJ_PRODUCTS_TEXT(DSJ_PRODUCTS_ISA),
                                                          kPairs, any_block};

}  // namespace dsj::kernels
