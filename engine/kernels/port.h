// The device port: what the engine asks of a device besides matrix products, attention and
// collectives, which libtorch and engine/comm bring. The model (engine/models/ops.h), the gradient
// norm and the optimizers (engine/zero/update.h) call nothing else.
//
// Plain pointers, sizes, types and a stream: torch-free and C++20, so that a file for nvcc can
// include it. Every pointer, results among them, is memory of the device. A call queues its work on
// the stream and returns without waiting for the device. One port serves all devices of a kind and
// any thread.
//
// Casts and copies are libtorch's copy_(), one launch on any device; an update casts as it goes.
// What stands beside each other is one call: an update takes the parameters of a whole flat, so
// that the number of launches does not grow with the number of parameters.
//
// Implementations: engine/device/cpu_port.cc, the tables of kernels.h; engine/device/aten_port.cc,
// libtorch's operations on any device, slow and readable: the oracle of the others. A device with
// some kernels of its own overrides a PartialPort and installs it (engine/device/device.h).
#pragma once

#include <cstdint>
#include <span>

namespace dsj::optim {
struct LambRule;
struct Update;
}  // namespace dsj::optim

namespace dsj::kernels {

enum class Type : uint8_t { F32, BF16, F16 };

/// Where work is queued. On a CPU there is no handle: the caller's threads do the work at once.
struct Stream {
  void* handle = nullptr;  ///< cudaStream_t
  int device = 0;          ///< which of its kind
};

/// Rows of elements. Element i of row r is data[r * stride + i]. data null: left out.
struct Rows {
  void* data = nullptr;
  Type type = Type::F32;
  int64_t rows = 0, width = 0, stride = 0;
};

/// n elements of one parameter or of a shard, as an optimizer sees them: contiguous.
struct Span {
  int64_t n = 0;
  float* p = nullptr;          ///< master
  const void* grad = nullptr;  ///< of grad_type
  Type grad_type = Type::F32;
  float* const* states = nullptr;  ///< in the order of optim::states_of()
  int state_count = 0;
  void* low = nullptr;  ///< of low_type: the 16-bit copy of p, written too; null: none
  Type low_type = Type::BF16;
  const double* coefficient = nullptr;  ///< LAMB's for this parameter; null: 1
  double* sums = nullptr;               ///< [2] of this parameter, for lamb_moments()
  /// [n], LAMB's u: lamb_moments() may leave it here for update(), which else computes it once more.
  /// It may be where an fp32 gradient is. Null: update() computes it.
  float* direction = nullptr;
};
using Spans = std::span<const Span>;

/// Shapes: N rows, H width, D head dimension, I intermediate size, V vocabulary. Rows have the
/// compute type unless a comment says otherwise. They are contiguous (stride = width) except in
/// head norms and rope, where the heads are a part of each row. "+=" adds to what is there.
class Port {
 public:
  virtual ~Port() = default;
  virtual const char* name() const = 0;

  // ---- norms
  /// How many partial sums a norm's backward wants for N rows. It decides the order of addition.
  virtual int64_t partials(int64_t rows) const = 0;
  /// y [N, H] = w [1, H] * round(x * rstd); rstd [N] fp32 = 1 / sqrt(mean(x^2) + eps).
  virtual void rms_norm(Stream, Rows x, Rows w, Rows y, float* rstd, float eps) = 0;
  /// dx [N, H] += gradient. dw [partials(N), H] fp32: the sum of its rows becomes dw's gradient.
  virtual void rms_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                                 Rows dw) = 0;
  /// y = (x - mean) * rstd * w + b, rounded once. mean, rstd [N] fp32.
  virtual void layer_norm(Stream, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                          float eps) = 0;
  /// dx [N, H] += gradient. dw, db [partials(N), H] fp32: the same.
  virtual void layer_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* mean,
                                   const float* rstd, Rows dx, Rows dw, Rows db) = 0;
  /// RMS norm of each of the first `heads` heads of every row, in place. w [1, D], rstd [N, heads].
  virtual void head_norm(Stream, Rows x, Rows w, int64_t heads, float* rstd, float eps) = 0;
  /// dy (the same heads) becomes the gradient of x. dw [partials(N), D] fp32: the same.
  virtual void head_norm_backward(Stream, Rows dy, Rows x, Rows w, int64_t heads, const float* rstd,
                                  Rows dw) = 0;
  /// out [1, H] (+)= the sum of the rows of partial [n, H] fp32, rounded once to out's type.
  virtual void sum_rows(Stream, Rows partial, Rows out, bool accumulate) = 0;

  // ---- element by element
  /// Rotates the first `heads` heads of each row of x, in place. Row n is at positions[n], which is
  /// below `length`. cos, sin [length, dim / 2] fp32. sign -1: the gradient.
  virtual void rope(Stream, Rows x, const float* cos, const float* sin, int64_t length,
                    const int64_t* positions, int64_t heads, int64_t dim, float sign) = 0;
  /// a [N, I] = round(silu(gate)) * up, with gate_up [N, 2I].
  virtual void swiglu(Stream, Rows gate_up, Rows a) = 0;
  /// gate_up becomes its own gradient.
  virtual void swiglu_backward(Stream, Rows da, Rows gate_up) = 0;
  /// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), rounded after each operation.
  virtual void gelu_new(Stream, Rows x, Rows y) = 0;
  /// x becomes its own gradient.
  virtual void gelu_new_backward(Stream, Rows dy, Rows x) = 0;

  // ---- loss and sums
  /// logits [n, V] become scale * (softmax - one hot(labels)). *loss += sum of -log softmax[label].
  virtual void cross_entropy(Stream, Rows logits, const int64_t* labels, float scale,
                             double* loss) = 0;
  /// out[index[n]] += x[n], for each row n of x, in fp32: each row of out is rounded once. index
  /// has x.rows elements.
  virtual void scatter_rows(Stream, Rows x, const int64_t* index, Rows out) = 0;
  /// *sum += the sum of the squares of x [1, n], in an order that does not depend on threads.
  virtual void sum_of_squares(Stream, Rows x, double* sum) = 0;

  // ---- optimizers
  /// Applies the update (optim/optimizer.h). All spans have the same number of states.
  virtual void update(Stream, const optim::Update& update, Spans spans) = 0;
  /// LAMB's first pass: updates both moments, and may overwrite span.direction. span.sums[0] += |p|^2,
  /// sums[1] += |u|^2, in double and in the spans' order. Spans may share their sums.
  virtual void lamb_moments(Stream, const optim::Update& update, Spans spans) = 0;
  /// coefficients[i] = optim::lamb_coefficient(rule, sums[2 i], sums[2 i + 1]) for i in [0, n).
  virtual void lamb_coefficients(Stream, const optim::LambRule& rule, const double* sums,
                                 double* coefficients, int64_t n) = 0;
};

/// A port that runs what it does not override on `rest`: the first kernel of a device is one
/// override. `rest` must outlive it.
class PartialPort : public Port {
 public:
  explicit PartialPort(Port& rest) : rest_(rest) {}
  int64_t partials(int64_t rows) const override { return rest_.partials(rows); }
  void rms_norm(Stream s, Rows x, Rows w, Rows y, float* rstd, float eps) override {
    rest_.rms_norm(s, x, w, y, rstd, eps);
  }
  void rms_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                         Rows dw) override {
    rest_.rms_norm_backward(s, dy, x, w, rstd, dx, dw);
  }
  void layer_norm(Stream s, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                  float eps) override {
    rest_.layer_norm(s, x, w, b, y, mean, rstd, eps);
  }
  void layer_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                           Rows dx, Rows dw, Rows db) override {
    rest_.layer_norm_backward(s, dy, x, w, mean, rstd, dx, dw, db);
  }
  void head_norm(Stream s, Rows x, Rows w, int64_t heads, float* rstd, float eps) override {
    rest_.head_norm(s, x, w, heads, rstd, eps);
  }
  void head_norm_backward(Stream s, Rows dy, Rows x, Rows w, int64_t heads, const float* rstd,
                          Rows dw) override {
    rest_.head_norm_backward(s, dy, x, w, heads, rstd, dw);
  }
  void sum_rows(Stream s, Rows partial, Rows out, bool accumulate) override {
    rest_.sum_rows(s, partial, out, accumulate);
  }
  void rope(Stream s, Rows x, const float* cos, const float* sin, int64_t length,
            const int64_t* positions, int64_t heads, int64_t dim, float sign) override {
    rest_.rope(s, x, cos, sin, length, positions, heads, dim, sign);
  }
  void swiglu(Stream s, Rows gate_up, Rows a) override { rest_.swiglu(s, gate_up, a); }
  void swiglu_backward(Stream s, Rows da, Rows gate_up) override {
    rest_.swiglu_backward(s, da, gate_up);
  }
  void gelu_new(Stream s, Rows x, Rows y) override { rest_.gelu_new(s, x, y); }
  void gelu_new_backward(Stream s, Rows dy, Rows x) override { rest_.gelu_new_backward(s, dy, x); }
  void cross_entropy(Stream s, Rows logits, const int64_t* labels, float scale,
                     double* loss) override {
    rest_.cross_entropy(s, logits, labels, scale, loss);
  }
  void scatter_rows(Stream s, Rows x, const int64_t* index, Rows out) override {
    rest_.scatter_rows(s, x, index, out);
  }
  void sum_of_squares(Stream s, Rows x, double* sum) override { rest_.sum_of_squares(s, x, sum); }
  void update(Stream s, const optim::Update& update, Spans spans) override {
    rest_.update(s, update, spans);
  }
  void lamb_moments(Stream s, const optim::Update& update, Spans spans) override {
    rest_.lamb_moments(s, update, spans);
  }
  void lamb_coefficients(Stream s, const optim::LambRule& rule, const double* sums,
                         double* coefficients, int64_t n) override {
    rest_.lamb_coefficients(s, rule, sums, coefficients, n);
  }

 protected:
  Port& rest() const { return rest_; }

 private:
  Port& rest_;
};

}  // namespace dsj::kernels
