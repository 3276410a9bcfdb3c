// The source of the products, compiled once per instruction set: each products_*.cc defines
// DSJ_PRODUCTS_ISA and includes it.
//
// A block of `out` is summed over stretches of k in sequence: each stretch is summed from zero and
// added to the previous sum. a's part of a stretch is packed whole, b's one panel at a time, in
// 32-bit cells: an fp32 value, or with bf16 units two bf16 values adjacent along k. The inner loop
// keeps kTile rows of kPanel columns in registers, loads a row of b's panel and multiplies it by
// one cell of each of a's rows. Meanwhile it prefetches the source of the next panel, because
// weights come from DRAM. Scratch fits a core's L2.
//
// fp32 sums are kept in `out` itself. A 16-bit `out` has scratch for them, unless there is only one
// stretch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

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
/// The same for unaligned addresses.
using Loose = float __attribute__((vector_size(sizeof(Vector)), may_alias, aligned(4)));
using Order = int32_t __attribute__((vector_size(sizeof(Vector))));
inline constexpr int kLanesOf = sizeof(Vector) / sizeof(float);
inline constexpr int kPanel = kLanesOf * kVectors;
/// Cells of a stretch of k. Stretches of a sum are equal up to kLine cells, on every CPU.
inline constexpr int64_t kCells = 256, kLine = 16;
/// The maximum of rows and columns of a block, and of one with sums in scratch. Multiples of every
/// kTile and kPanel.
inline constexpr int64_t kRows = 384, kColumns = 3072, kSumRows = 240, kSumColumns = 192;
/// Cells from one row of packed a to the next; padded, so that rows are in different cache sets.
inline constexpr int64_t kStride = kCells + 16;
static_assert(kRows % kTile == 0 && kSumRows % kTile == 0);
static_assert(kColumns % kPanel == 0 && kSumColumns % kPanel == 0);

struct Scratch {
  alignas(64) uint32_t a[kRows * kStride];
  alignas(64) uint32_t b[kPanel * kCells];
  alignas(64) float sums[kSumRows * kSumColumns];
  alignas(64) float tile[kTile * kPanel];
};
inline Scratch& scratch() {
  thread_local const std::unique_ptr<Scratch> mine(new Scratch);
  return *mine;
}

/// Transposes v, kLanesOf rows of a square. Each step interleaves the halves of the rows, which
/// rotates the bits of an element's index by one.
inline void transpose(Vector* v) {
  Order low, high;
  for (int i = 0; i < kLanesOf; ++i) {
    low[i] = i / 2 + i % 2 * kLanesOf;
    high[i] = low[i] + kLanesOf / 2;
  }
#pragma GCC unroll 4
  for (int step = 1; step < kLanesOf; step *= 2) {
    Vector dealt[kLanesOf];
#pragma GCC unroll 8
    for (int i = 0; i < kLanesOf / 2; ++i) {
      dealt[2 * i] = __builtin_shuffle(v[i], v[i + kLanesOf / 2], low);
      dealt[2 * i + 1] = __builtin_shuffle(v[i], v[i + kLanesOf / 2], high);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanesOf; ++i) v[i] = dealt[i];
  }
}

/// Cells are fp32 values.
template <typename T>
struct Floats {
  using Element = T;
  static constexpr int64_t kDeep = 1;  ///< values of k per cell
  /// Cell `cell` of a row that is contiguous along k.
  static uint32_t along(const T* row, int64_t cell, int64_t) {
    return std::bit_cast<uint32_t>(load(row, cell));
  }
  /// Cell `cell` of column i, if columns are adjacent in memory.
  static uint32_t across(const T* first, int64_t stride, int64_t cell, int64_t, int64_t i) {
    return std::bit_cast<uint32_t>(load(first + cell * stride, i));
  }
  /// kLanesOf cells of a row, from cell `cell` on.
  static Vector line(const T* row, int64_t cell) {
    Vector cells;
    if constexpr (sizeof(T) == sizeof(float)) {
      std::memcpy(&cells, row + cell, sizeof cells);
    } else {
      for (int i = 0; i < kLanesOf; ++i) cells[i] = load(row, cell + i);
    }
    return cells;
  }
  static Vector add(Vector sum, uint32_t a, Vector b) { return sum + std::bit_cast<float>(a) * b; }
};

#ifdef __AVX512BF16__
/// Cells are two bf16 values, the first in the low half; an odd last one is paired with zero.
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
  static Vector line(const Bf16* row, int64_t cell) {
    Vector cells;
    std::memcpy(&cells, row + 2 * cell, sizeof cells);
    return cells;
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

/// Values of k in each stretch of a sum except the last.
template <typename Unit>
int64_t stretch_of(int64_t k) {
  constexpr int64_t kMost = kCells * Unit::kDeep, kStep = kLine * Unit::kDeep;
  const int64_t stretches = (k + kMost - 1) / kMost, each = (k + stretches - 1) / stretches;
  return (each + kStep - 1) / kStep * kStep;
}

template <typename T>
const T* at(const Operand& operand, int64_t row, int64_t column) {
  return static_cast<const T*>(operand.data) + row * operand.row + column * operand.column;
}

/// The layout of packed a: cell c of row r of a tile is at tile[r * row + c * cell].
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
      const int64_t whole = k.depth / (Unit::kDeep * kLanesOf) * kLanesOf;
      for (int64_t c = 0; c < whole; c += kLanesOf) *(Loose*)(to + c) = (Loose)Unit::line(row, c);
      for (int64_t c = whole; c < k.cells; ++c) to[c] = Unit::along(row, c, k.depth);
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

/// Columns [first, first + count) of b, at most kPanel, as a panel [cells, kPanel], padded with
/// zeros.
template <typename Unit>
void pack_panel(const Operand& b, int64_t first, int64_t count, const Stretch& k, uint32_t* out) {
  using T = typename Unit::Element;
  const T* const corner = at<T>(b, k.first, first);
  if (count < kPanel) std::fill_n(out, kPanel * k.cells, 0u);
  if (b.column == 1) {
    for (int64_t c = 0; c < k.cells; ++c, out += kPanel) {
      if (count == kPanel) {
        for (int64_t i = 0; i < kPanel; ++i) out[i] = Unit::across(corner, b.row, c, k.depth, i);
      } else {
        for (int64_t i = 0; i < count; ++i) out[i] = Unit::across(corner, b.row, c, k.depth, i);
      }
    }
    return;
  }
  const int64_t squares = k.depth / (Unit::kDeep * kLanesOf) * kLanesOf;  // cells
  for (int64_t i = 0; i < count; i += kLanesOf) {
    const T* const column = corner + i * b.column;
    const int64_t here = std::min<int64_t>(kLanesOf, count - i);
    const int64_t whole = here == kLanesOf ? squares : 0;
    for (int64_t c = 0; c < whole; c += kLanesOf) {
      Vector square[kLanesOf];
#pragma GCC unroll 16
      for (int j = 0; j < kLanesOf; ++j) square[j] = Unit::line(column + j * b.column, c);
      transpose(square);
#pragma GCC unroll 16
      for (int j = 0; j < kLanesOf; ++j) *(Vector*)(out + (c + j) * kPanel + i) = square[j];
    }
    for (int64_t c = whole; c < k.cells; ++c)
      for (int64_t j = 0; j < here; ++j)
        out[c * kPanel + i + j] = Unit::along(column + j * b.column, c, k.depth);
  }
}

/// Prefetches a panel of b in as many turns as there are tiles.
class Ahead {
 public:
  template <typename T>
  Ahead(const Operand& b, T, int64_t first, int64_t count, const Stretch& k, int64_t turns) {
    if (count <= 0) return;
    constexpr int64_t kBytes = 64, kSize = sizeof(T);
    const bool across = b.column == 1;
    at_ = reinterpret_cast<const char*>(at<T>(b, k.first, first));
    pitch_ = (across ? b.row : b.column) * kSize;
    lines_ = ((across ? count : k.depth) * kSize + kBytes - 1) / kBytes;
    left_ = lines_ * (across ? k.depth : count);
    turn_ = (left_ + turns - 1) / turns;
  }
  void turn() {
    for (int64_t n = std::min(turn_, left_); n > 0; --n, --left_) {
      __builtin_prefetch(at_ + line_ * 64, 0, 2);
      if (++line_ < lines_) continue;
      line_ = 0;
      at_ += pitch_;
    }
  }

 private:
  const char* at_ = nullptr;
  int64_t pitch_ = 0, lines_ = 0, line_ = 0;
  int64_t left_ = 0, turn_ = 0;  ///< lines
};

/// out [kTile, kPanel] = a tile of a times a panel of b, (+ from [kTile, kPanel]).
template <typename Unit, bool kAdd>
__attribute__((noinline)) void multiply(const uint32_t* a, int64_t row, int64_t cell,
                                        const uint32_t* b, int64_t cells, const float* from,
                                        int64_t from_row, float* out, int64_t out_row) {
  Vector s[kTile][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kTile; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      __builtin_prefetch(out + r * out_row + v * kLanesOf, 1, 3);
      s[r][v] = Vector{};
    }
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
    for (int v = 0; v < kVectors; ++v) {
      if (kAdd) s[r][v] += (Vector) * (const Loose*)(from + r * from_row + v * kLanesOf);
      *(Loose*)(out + r * out_row + v * kLanesOf) = (Loose)s[r][v];
    }
}

/// Writes a row of out: sums + bias + addend, rounded once. addend may be out.
template <typename T, typename Out>
void finish(const float* sums, const T* bias, const Out* addend, Out* out, int64_t n) {
  if (!bias && !addend) {
    for (int64_t i = 0; i < n; ++i) store(out, i, sums[i]);
  } else if (!bias) {
    for (int64_t i = 0; i < n; ++i) store(out, i, sums[i] + load(addend, i));
  } else {
    for (int64_t i = 0; i < n; ++i)
      store(out, i, sums[i] + load(bias, i) + (addend ? load(addend, i) : 0.0f));
  }
}

/// Whether a block's sums are in scratch until the last stretch.
template <typename Unit>
bool sums_apart(const Product& p) {
  return p.out_type != Type::F32 && stretch_of<Unit>(p.k) < p.k;
}

inline int64_t parts_of(int64_t n, int64_t most) {
  return (n + most - 1) / most;
}
/// The size of each of `parts` parts of n, a multiple of `step`.
inline int64_t part_of(int64_t n, int64_t parts, int64_t step) {
  return parts_of(parts_of(n, std::max<int64_t>(parts, 1)), step) * step;
}

/// Cuts p into at least down x across blocks.
inline Blocks cut(const Product& p, int64_t down, int64_t across) {
  Blocks b{.rows = part_of(p.m, down, kTile), .columns = part_of(p.n, across, kPanel)};
  b.down = b.rows > 0 ? parts_of(p.m, b.rows) : 0;
  b.across = b.columns > 0 ? parts_of(p.n, b.columns) : 0;
  return b;
}

/// The blocks that minimise the work of the busiest thread; the largest of equals.
template <typename Unit>
Blocks product_blocks(const Product& p, int64_t threads) {
  const bool apart = sums_apart<Unit>(p);
  const int64_t down = parts_of(p.m, apart ? kSumRows : kRows);
  const int64_t across = parts_of(p.n, apart ? kSumColumns : kColumns);
  Blocks best = cut(p, down, across);
  const auto busiest = [&](const Blocks& b) {
    return parts_of(b.count(), threads) * b.rows * b.columns;
  };
  for (int64_t i = 1; i <= threads && threads > 1; ++i) {
    if (threads % i != 0) continue;
    const Blocks b = cut(p, parts_of(down, i) * i, parts_of(across, threads / i) * (threads / i));
    if (busiest(b) < busiest(best)) best = b;
  }
  return best;
}

/// Computes a block of `Out`.
template <typename Unit, typename Out>
class Block {
 public:
  Block(const Product& p, const Blocks& blocks, int64_t block)
      : p_(p),
        row_(block % blocks.down * blocks.rows),
        column_(block / blocks.down * blocks.columns),
        rows_(std::min(blocks.rows, p.m - row_)),
        columns_(std::min(blocks.columns, p.n - column_)),
        apart_(sums_apart<Unit>(p)) {}

  void compute() {
    const int64_t each = stretch_of<Unit>(p_.k);
    for (int64_t first = 0; first < p_.k; first += each) {
      const int64_t depth = std::min(each, p_.k - first);
      stretch({first, depth, (depth + Unit::kDeep - 1) / Unit::kDeep});
    }
    if (apart_) finish_sums();
  }

 private:
  using T = typename Unit::Element;
  static constexpr bool kWide = std::is_same_v<Out, float>;

  void stretch(const Stretch& k) {
    Scratch& s = scratch();
    const PackedRows a = pack_rows<Unit>(p_.a, row_, rows_, k, s.a);
    for (int64_t c = 0; c < columns_; c += kPanel) {
      const int64_t columns = std::min<int64_t>(kPanel, columns_ - c), next = c + kPanel;
      pack_panel<Unit>(p_.b, column_ + c, columns, k, s.b);
      Ahead ahead(p_.b, T{}, column_ + next, std::min<int64_t>(kPanel, columns_ - next), k,
                  parts_of(rows_, kTile));
      for (int64_t r = 0; r < rows_; r += kTile) {
        ahead.turn();
        tile(a, s.a + r / kTile * a.tile, k, r, std::min<int64_t>(kTile, rows_ - r), c, columns);
      }
    }
  }

  /// Tile [rows, columns] at r, c of the block.
  void tile(const PackedRows& a, const uint32_t* cells, const Stretch& k, int64_t r, int64_t rows,
            int64_t c, int64_t columns) {
    Scratch& s = scratch();
    const bool first = k.first == 0, whole = rows == kTile && columns == kPanel;
    const auto multiplied = [&](const float* from, int64_t from_row, float* out, int64_t out_row) {
      const auto kernel = from ? multiply<Unit, true> : multiply<Unit, false>;
      kernel(cells, a.row, a.cell, s.b, k.cells, from, from_row, out, out_row);
    };
    if (apart_) {
      float* const sums = s.sums + r * kSumColumns + c;
      return multiplied(first ? nullptr : sums, kSumColumns, sums, kSumColumns);
    }
    Out* const out = out_at(r, c);
    const Out* const from = first ? addend_at(r, c) : out;  // has several stretches only in fp32
    const int64_t from_row = first ? p_.addend_row : p_.out_row;
    const T* const bias = first ? bias_at(c) : nullptr;
    if constexpr (kWide) {
      if (whole && !bias) return multiplied(from, from_row, out, p_.out_row);
    }
    multiplied(nullptr, 0, s.tile, kPanel);
    for (int64_t i = 0; i < rows; ++i)
      finish(s.tile + i * kPanel, bias, from ? from + i * from_row : nullptr, out + i * p_.out_row,
             columns);
  }

  void finish_sums() {
    for (int64_t r = 0; r < rows_; ++r)
      finish(scratch().sums + r * kSumColumns, bias_at(0), addend_at(r, 0), out_at(r, 0), columns_);
  }

  Out* out_at(int64_t r, int64_t c) const {
    return static_cast<Out*>(p_.out) + (row_ + r) * p_.out_row + column_ + c;
  }
  const Out* addend_at(int64_t r, int64_t c) const {
    if (!p_.addend) return nullptr;
    return static_cast<const Out*>(p_.addend) + (row_ + r) * p_.addend_row + column_ + c;
  }
  const T* bias_at(int64_t c) const {
    return p_.bias ? static_cast<const T*>(p_.bias) + column_ + c : nullptr;
  }

  const Product& p_;
  const int64_t row_, column_, rows_, columns_;
  const bool apart_;
};

/// f(Unit{}) for the product's type.
template <typename F>
auto with_unit(const Product& p, F f) {
  if (p.type == Type::F32) return f(Floats<float>{});
  if (p.type == Type::F16) return f(Floats<Half>{});
#ifdef __AVX512BF16__
  return f(Pairs{});
#else
  return f(Floats<Bf16>{});
#endif
}

Blocks any_blocks(const Product& p, int64_t threads) {
  return with_unit(p, [&](auto unit) { return product_blocks<decltype(unit)>(p, threads); });
}

void any_block(const Product& p, const Blocks& blocks, int64_t block) {
  with_unit(p, [&](auto unit) {
    using Unit = decltype(unit);
    if (p.out_type == Type::F32)
      Block<Unit, float>(p, blocks, block).compute();
    else
      Block<Unit, typename Unit::Element>(p, blocks, block).compute();
  });
}

#ifdef __AVX512BF16__
inline constexpr bool kPairs = true;
#else
inline constexpr bool kPairs = false;
#endif
#ifdef __FMA__
inline constexpr bool kFused = true;
#else
inline constexpr bool kFused = false;
#endif

}  // namespace

#define DSJ_PRODUCTS_NAME2(isa) products_##isa
#define DSJ_PRODUCTS_NAME(isa) DSJ_PRODUCTS_NAME2(isa)
#define DSJ_PRODUCTS_TEXT2(isa) #isa
#define DSJ_PRODUCTS_TEXT(isa) DSJ_PRODUCTS_TEXT2(isa)
extern const ProductTable DSJ_PRODUCTS_NAME(DSJ_PRODUCTS_ISA);
const ProductTable DSJ_PRODUCTS_NAME(DSJ_PRODUCTS_ISA) = {DSJ_PRODUCTS_TEXT(DSJ_PRODUCTS_ISA),
                                                          kPairs, kFused, any_blocks, any_block};

}  // namespace dsj::kernels
