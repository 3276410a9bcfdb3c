// The CUDA kernels of the device port: run() queues an operation of port.h on a stream, or nothing
// if there are no elements. Throws runtime_error if the device refuses a launch. An operation that
// is not declared here has no kernel.
// Tested by: tests/engine/kernels/cuda/kernels_test.cc
#pragma once

#include <cstddef>

#include "engine/kernels/port.h"

namespace dsj::optim {
struct LambMoments;
}

namespace dsj::kernels::cuda {

/// Device memory for the duration of one call. Any thread.
class Scratch {
 public:
  virtual ~Scratch() = default;
  /// At least `bytes`, aligned to 16, for work of this stream only.
  virtual void* take(Stream stream, size_t bytes) = 0;
  /// Called when the work has been queued: the stream's order protects the memory from later users.
  virtual void give(Stream stream, void* memory) = 0;
};

/// `count` values of scratch, until it goes out of scope.
template <typename T>
class Taken {
 public:
  Taken(Scratch& scratch, Stream stream, int64_t count)
      : scratch_(scratch),
        stream_(stream),
        data_(scratch.take(stream, static_cast<size_t>(count) * sizeof(T))) {}
  ~Taken() { scratch_.give(stream_, data_); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  T* data() const { return static_cast<T*>(data_); }

 private:
  Scratch& scratch_;
  const Stream stream_;
  void* const data_;
};

/// Partial sums of a norm's backward: enough blocks to fill a large device twice.
int64_t norm_partials(int64_t rows);
/// Partial sums of SumOfSquares.
int64_t square_blocks(int64_t n);

void run(Stream, const RmsNorm&, Scratch&);
void run(Stream, const RmsNormBackward&, Scratch&);
void run(Stream, const LayerNorm&, Scratch&);
void run(Stream, const LayerNormBackward&, Scratch&);
void run(Stream, const HeadNorm&, Scratch&);
void run(Stream, const HeadNormBackward&, Scratch&);
void run(Stream, const SumRows&, Scratch&);
void run(Stream, const Rope&, Scratch&);
void run(Stream, const Swiglu&, Scratch&);
void run(Stream, const SwigluBackward&, Scratch&);
void run(Stream, const GeluNew&, Scratch&);
void run(Stream, const GeluNewBackward&, Scratch&);
void run(Stream, const CrossEntropy&, Scratch&);
void run(Stream, const ScatterRows&, Scratch&);
void run(Stream, const SumOfSquares&, Scratch&);
// The operations on optimizers, in the form of elements.h (cuda_port.cc). The number of launches
// does not depend on the number of spans.
/// `rule`: the rule number `which` of optim::ElementRules.
void update(Stream, size_t which, const void* rule, float grad_scale, Spans spans);
void lamb_moments(Stream, const optim::LambMoments& rule, float grad_scale, Spans spans, Scratch&);
void lamb_coefficients(Stream, double least, double most, const LambCoefficients&);

}  // namespace dsj::kernels::cuda
