// The device port by our CUDA kernels; what has none runs on the port below it, libtorch's
// operations. Torch-free: the same class runs on a device and on the emulated block.
// Tested by: tests/engine/kernels/cuda/kernels_test.cc, tests/engine/device/port_test.cc
#pragma once

#include <cstddef>

#include "engine/kernels/port.h"

namespace dsj::kernels::cuda {

/// Memory of a device for the length of one call. Any thread.
class Scratch {
 public:
  virtual ~Scratch() = default;
  /// At least `bytes`, aligned to 16, for work of this stream alone.
  virtual void* take(Stream stream, size_t bytes) = 0;
  /// Given back when the work has been queued: the stream's own order keeps later users away.
  virtual void give(Stream stream, void* memory) = 0;
};

class CudaPort final : public PartialPort {
 public:
  /// Both must outlive it.
  CudaPort(Port& rest, Scratch& scratch) : PartialPort(rest), scratch_(scratch) {}
  const char* name() const override { return "cuda"; }
  int64_t partials(int64_t rows) const override;
  void rms_norm(Stream, Rows x, Rows w, Rows y, float* rstd, float eps) override;
  void rms_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                         Rows dw) override;
  void layer_norm(Stream, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                  float eps) override;
  void layer_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                           Rows dx, Rows dw, Rows db) override;
  void sum_rows(Stream, Rows partial, Rows out, bool accumulate) override;
  void rope(Stream, Rows x, const float* cos, const float* sin, int64_t length,
            const int64_t* positions, int64_t heads, int64_t dim, float sign) override;
  void swiglu(Stream, Rows gate_up, Rows a) override;
  void swiglu_backward(Stream, Rows da, Rows gate_up) override;
  void gelu_new(Stream, Rows x, Rows y) override;
  void gelu_new_backward(Stream, Rows dy, Rows x) override;
  void cross_entropy(Stream, Rows logits, const int64_t* labels, float scale,
                     double* loss) override;
  void sum_of_squares(Stream, Rows x, double* sum) override;

 private:
  Scratch& scratch_;
};

}  // namespace dsj::kernels::cuda
