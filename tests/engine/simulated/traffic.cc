#include "tests/engine/simulated/traffic.h"

#include <span>
#include <type_traits>

#include "engine/kernels/cuda/launchers.h"
#include "tests/engine/support/operands.h"

namespace dsj::simulated {
namespace {

using namespace kernels;  // NOLINT: the operations
using testing_support::size_of;

int64_t of(const Rows& rows) {
  return rows.data == nullptr ? 0 : rows.rows * rows.width * size_of(rows.type);
}
/// The first heads of each row.
int64_t of_heads(const Rows& x, int64_t heads, int64_t dim) {
  return x.rows * heads * dim * size_of(x.type);
}

/// Every operand once.
struct Once {
  void operator()(const Rows& x) { bytes += of(x); }
  template <typename T>
  void operator()(std::span<T> x) {
    bytes += static_cast<int64_t>(x.size_bytes());
  }
  void operator()(double*) {}
  template <typename T>
  requires std::is_arithmetic_v<T>
  void operator()(T) {}
  int64_t bytes = 0;
};

/// What is passed over more often than once, and what an operation writes besides.
template <typename Op>
int64_t more(const Op&) {
  return 0;
}
int64_t more(const RmsNormBackward& op) {
  return of(op.dx);
}
int64_t more(const LayerNormBackward& op) {
  return of(op.dx);
}
int64_t more(const HeadNorm& op) {
  return 2 * of_heads(op.x, op.heads, op.w.width) - of(op.x);
}
int64_t more(const HeadNormBackward& op) {
  return 3 * of_heads(op.x, op.heads, op.w.width) - of(op.dy) - of(op.x);
}
int64_t more(const SumRows& op) {
  return op.accumulate ? of(op.out) : 0;
}
int64_t more(const Rope& op) {
  return 2 * of_heads(op.x, op.heads, op.dim) - of(op.x);
}
int64_t more(const SwigluBackward& op) {
  return of(op.gate_up);
}
int64_t more(const GeluNewBackward& op) {
  return of(op.x);
}
/// A pass for peak and sum, one that writes; a loss that is written and added.
int64_t more(const CrossEntropy& op) {
  return 2 * of(op.logits) + 2 * 8 * op.logits.rows;
}
/// The order is written and read; as if each row went to a row of its own.
int64_t more(const ScatterRows& op) {
  return 2 * op.x.rows * op.out.width * size_of(op.out.type) - of(op.out) + 8 * op.x.rows;
}
int64_t more(const SumOfSquares& op) {
  return 2 * 8 * kernels::cuda::square_blocks(op.x.width);
}

template <typename Op>
int64_t all_of(const Op& op) {
  Once once;
  testing_support::for_members(op, once);
  return once.bytes + more(op);
}
int64_t all_of(const UpdateSpans& op) {
  int64_t bytes = 0;
  for (const Span& span : op.spans) {
    int64_t element = 2 * 4 * (1 + span.state_count) + size_of(span.grad_type);
    if (span.low != nullptr) element += size_of(span.low_type);
    bytes += span.n * element;
  }
  return bytes;
}
int64_t all_of(const LambMoments&) {
  return 0;
}
int64_t all_of(const LambCoefficients&) {
  return 0;
}

class Counting final : public UniformPort<Counting, PartialPort> {
 public:
  Counting(Port& rest, int64_t& bytes) : UniformPort(rest), bytes_(bytes) {}
  const char* name() const override { return rest().name(); }
  template <typename Op>
  void each(Stream s, const Op& op, const char*) {
    bytes_ += all_of(op);
    rest().run(s, op);
  }

 private:
  int64_t& bytes_;
};

}  // namespace

std::unique_ptr<Port> counting_port(Port& rest, int64_t& bytes) {
  return std::make_unique<Counting>(rest, bytes);
}

}  // namespace dsj::simulated
