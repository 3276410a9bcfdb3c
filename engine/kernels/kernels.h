// The engine's CPU kernels other than matrix products. Plain pointers, torch-free. Each call runs
// an operation of port.h on a range of its rows or elements, single-threaded: the caller splits the
// work. There is one table per instruction set, chosen at run time.
//
// Sums and transcendental functions are fp32. 16-bit values are rounded after every named
// operation, as in Hugging Face's code under PyTorch, so that losses agree. For callers and oracle
// see port.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kernels/port.h"
#include "engine/optim/element_rules.h"

namespace dsj::kernels {

/// Bits of a bfloat16; arithmetic happens in fp32.
struct Bf16 {
  uint16_t bits;
};

/// Bits of an IEEE binary16; arithmetic happens in fp32. Above 65504 it rounds to infinity.
struct Half {
  uint16_t bits;
};

/// out [1, H] += the rows x[rows[0]], x[rows[1]] ..., in this order in fp32; rounded once.
struct AddRows {
  In x;
  std::span<const int64_t> rows;
  Rows out;
};

/// The operations that have a kernel in a table. run(operation, begin, end) processes rows [begin,
/// end) of the first operand, or elements if the operation is elementwise (gelu, squares), or
/// columns of out in AddRows. A norm's backward adds its share to dw and db [1, H]. A sum of
/// squares uses fp32 lanes over each 4096 elements and double above that: ranges that begin at
/// multiples of 4096 give the same sum.
#define DSJ_CPU_OPERATIONS(_)                                                            \
  _(RmsNorm)                                                                             \
  _(RmsNormBackward)                                                                     \
  _(LayerNorm)                                                                           \
  _(LayerNormBackward) _(Rope) _(Swiglu) _(SwigluBackward) _(GeluNew) _(GeluNewBackward) \
      _(CrossEntropy) _(AddRows) _(SumOfSquares)

class Table {
 public:
  explicit constexpr Table(const char* name) : isa(name) {}
  const char* const isa;  ///< "avx512", "avx2", "baseline"; resume is bit-identical on one isa

#define DSJ_KERNEL(Op) virtual void run(const Op& op, int64_t begin, int64_t end) const = 0;
  DSJ_CPU_OPERATIONS(DSJ_KERNEL)
#undef DSJ_KERNEL

  /// Applies a rule to a span. `rule`: the rule number `which` of optim::ElementRules, including
  /// its coefficient.
  virtual void update(size_t which, const void* rule, float grad_scale, const Span& span) const = 0;
  /// Adds to sums[0], sums[1] in double and ignores the span's own `sums`. Writes span.direction if
  /// it is set, for the update.
  virtual void lamb_moments(const optim::LambMoments& rule, float grad_scale, const Span& span,
                            double* sums) const = 0;

 protected:
  ~Table() = default;
};

/// The best table for this CPU. DSJ_ISA=avx2|baseline selects a lower one.
const Table& table();
/// The table of that name; nullptr if this CPU or build lacks it. For tests.
const Table* table(const char* isa);

}  // namespace dsj::kernels
