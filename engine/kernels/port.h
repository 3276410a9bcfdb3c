// The device port: all operations of a device except matrix products, attention and collectives,
// which libtorch and engine/comm provide. The model (engine/models/ops/ops.h), the gradient norm and
// the optimizers (engine/zero/flat/update.h) use only this.
//
// An operation is a struct of its arguments. It is declared here once and listed in DSJ_OPERATIONS,
// from which every port's methods are generated. Forwarding code passes the struct; only callers
// and implementations name the arguments.
//
// Plain pointers, sizes, types and a stream: torch-free and C++20, so that files for nvcc can
// include it. All pointers, including those to results, are device memory. A call queues its work
// on the stream, returns without waiting for the device, and keeps no pointer to the struct. One
// port serves all devices of a kind and any thread.
//
// Casts and copies are libtorch's copy_(), one launch on any device; an update casts by itself. One
// call takes all parallel work: an update takes the parameters of a whole flat, so that the number
// of launches does not grow with the number of parameters.
//
// Implementations: engine/device/cpu_port.cc, with the tables of kernels.h;
// engine/device/aten_port.cc, libtorch's operations on any device, slow and readable: the oracle. A
// device with some kernels overrides a PartialPort and installs it (engine/device/device.h).
#pragma once

#include <cstdint>
#include <span>

namespace dsj::optim {
struct LambRule;
struct Update;
}  // namespace dsj::optim

namespace dsj::kernels {

enum class Type : uint8_t { F32, BF16, F16 };

/// The queue for work. On a CPU it has no handle: the caller's threads do the work at once.
struct Stream {
  void* handle = nullptr;  ///< cudaStream_t
  int device = 0;          ///< index among its kind
};

/// Rows of elements that a call writes. Element i of row r is data[r * stride + i]. data is null
/// for an absent operand.
struct Rows {
  void* data = nullptr;
  Type type = Type::F32;
  int64_t rows = 0, width = 0, stride = 0;
};
/// Rows that a call only reads.
struct In : Rows {
  In() = default;
  In(const Rows& rows) : Rows(rows) {}
};

/// n contiguous elements of one parameter or of a shard, for an optimizer.
struct Span {
  int64_t n = 0;
  float* p = nullptr;          ///< master
  const void* grad = nullptr;  ///< of grad_type
  Type grad_type = Type::F32;
  float* const* states = nullptr;  ///< in the order of optim::states_of()
  int state_count = 0;
  void* low = nullptr;  ///< of low_type: 16-bit copy of p, also written; may be null
  Type low_type = Type::BF16;
  const double* coefficient = nullptr;  ///< LAMB's for this parameter; null means 1
  double* sums = nullptr;               ///< [2] of this parameter, for LambMoments
  /// [n], LAMB's u: LambMoments may write it here for UpdateSpans. May be the memory of an fp32
  /// gradient. If null, UpdateSpans computes it again.
  float* direction = nullptr;
};
using Spans = std::span<const Span>;

// ---- the operations. Shapes: N rows, H width, D head dimension, I intermediate size, V
// vocabulary. Rows have the compute type unless a comment says otherwise. They are contiguous
// (stride = width) except in head norms and rope, where the heads are a part of each row. A
// std::span has an element per row unless its shape is given; const elements are only read. "+="
// adds to the old value.

/// y [N, H] = w [1, H] * round(x * rstd); rstd fp32 = 1 / sqrt(mean(x^2) + eps).
struct RmsNorm {
  In x, w;
  Rows y;
  std::span<float> rstd;
  float eps = 0;
};

/// dx [N, H] += gradient. dw [partials(N), H] fp32: partial sums of w's gradient.
struct RmsNormBackward {
  In dy, x, w;
  std::span<const float> rstd;
  Rows dx, dw;
};

/// y = (x - mean) * rstd * w + b, rounded once. mean, rstd fp32.
struct LayerNorm {
  In x, w, b;
  Rows y;
  std::span<float> mean, rstd;
  float eps = 0;
};

/// dx [N, H] += gradient. dw, db [partials(N), H] fp32: partial sums, as above.
struct LayerNormBackward {
  In dy, x, w;
  std::span<const float> mean, rstd;
  Rows dx, dw, db;
};

/// RMS norm of each of the first `heads` heads of every row, in place. w [1, D], rstd [N, heads].
struct HeadNorm {
  Rows x;
  In w;
  int64_t heads = 0;
  std::span<float> rstd;
  float eps = 0;
};

/// dy (the same heads) becomes the gradient of x. dw [partials(N), D] fp32: partial sums, as above.
struct HeadNormBackward {
  Rows dy;
  In x, w;
  int64_t heads = 0;
  std::span<const float> rstd;
  Rows dw;
};

/// out [1, H] (+)= the sum of the rows of partial [n, H] fp32, rounded once to out's type.
struct SumRows {
  In partial;
  Rows out;
  bool accumulate = false;
};

/// Rotates the first `heads` heads of each row of x, in place. Row n is at positions[n]. cos, sin
/// [positions, dim / 2] fp32. sign -1: the gradient.
struct Rope {
  Rows x;
  std::span<const float> cos, sin;
  std::span<const int64_t> positions;
  int64_t heads = 0, dim = 0;
  float sign = 1;
};

/// a [N, I] = round(silu(gate)) * up, with gate_up [N, 2I].
struct Swiglu {
  In gate_up;
  Rows a;
};

/// gate_up becomes its own gradient.
struct SwigluBackward {
  In da;
  Rows gate_up;
};

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), rounded after each operation.
struct GeluNew {
  In x;
  Rows y;
};

/// x becomes its own gradient.
struct GeluNewBackward {
  In dy;
  Rows x;
};

/// logits [N, V] become scale * (softmax - one hot(labels)). *loss += sum of -log softmax[label].
struct CrossEntropy {
  Rows logits;
  std::span<const int64_t> labels;
  float scale = 1;
  double* loss = nullptr;
};

/// out[index[n]] += x[n], for each row n of x, in fp32: each row of out is rounded once.
struct ScatterRows {
  In x;
  std::span<const int64_t> index;
  Rows out;
};

/// *sum += the sum of the squares of x [1, n], in an order independent of threads.
struct SumOfSquares {
  In x;
  double* sum = nullptr;
};

/// Applies the update (optim/optimizer.h). All spans have the same number of states.
struct UpdateSpans {
  const optim::Update* update = nullptr;
  Spans spans;
};

/// LAMB's first pass: updates both moments, and may overwrite span.direction. span.sums[0] +=
/// |p|^2, sums[1] += |u|^2, in double and in the spans' order. Spans may share their sums.
struct LambMoments {
  const optim::Update* update = nullptr;
  Spans spans;
};

/// coefficients[i] = optim::lamb_coefficient(rule, sums[2 i], sums[2 i + 1]). sums [2 n],
/// coefficients [n].
struct LambCoefficients {
  const optim::LambRule* rule = nullptr;
  std::span<const double> sums;
  std::span<double> coefficients;
};

/// All operations: DSJ_OPERATIONS(_) is _(RmsNorm) _(RmsNormBackward) ...
#define DSJ_OPERATIONS(_)                                                            \
  _(RmsNorm)                                                                         \
  _(RmsNormBackward)                                                                 \
  _(LayerNorm)                                                                       \
  _(LayerNormBackward) _(HeadNorm) _(HeadNormBackward) _(SumRows) _(Rope) _(Swiglu)  \
      _(SwigluBackward) _(GeluNew) _(GeluNewBackward) _(CrossEntropy) _(ScatterRows) \
          _(SumOfSquares) _(UpdateSpans) _(LambMoments) _(LambCoefficients)

class Port {
 public:
  virtual ~Port() = default;
  virtual const char* name() const = 0;
  /// The number of partial sums of a norm's backward for N rows; sets the order of addition.
  virtual int64_t partials(int64_t rows) const = 0;
#define DSJ_METHOD(Op) virtual void run(Stream, const Op&) = 0;
  DSJ_OPERATIONS(DSJ_METHOD)
#undef DSJ_METHOD
};

/// A port whose operations are all one template: Self::each(stream, operation, name).
template <typename Self, typename Base = Port>
class UniformPort : public Base {
 public:
  using Base::Base;
#define DSJ_METHOD(Op)                          \
  void run(Stream s, const Op& op) override {   \
    static_cast<Self*>(this)->each(s, op, #Op); \
  }
  DSJ_OPERATIONS(DSJ_METHOD)
#undef DSJ_METHOD
};

/// A port that forwards operations that it does not override to `rest`, so that a device can start
/// with one kernel. `rest` must outlive it.
class PartialPort : public Port {
 public:
  explicit PartialPort(Port& rest) : rest_(rest) {}
  int64_t partials(int64_t rows) const override { return rest_.partials(rows); }
#define DSJ_METHOD(Op)                        \
  void run(Stream s, const Op& op) override { \
    rest_.run(s, op);                         \
  }
  DSJ_OPERATIONS(DSJ_METHOD)
#undef DSJ_METHOD

 protected:
  Port& rest() const {
    return rest_;
  }

 private:
  Port& rest_;
};

}  // namespace dsj::kernels
