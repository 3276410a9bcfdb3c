#include "engine/kernels/cuda/cuda_port.h"

#include "engine/kernels/cuda/launchers.h"

namespace dsj::kernels::cuda {
namespace {

/// `count` doubles of scratch, until it goes out of scope.
class Doubles {
 public:
  Doubles(Scratch& scratch, Stream stream, int64_t count)
      : scratch_(scratch),
        stream_(stream),
        data_(scratch.take(stream, static_cast<size_t>(count) * sizeof(double))) {}
  ~Doubles() { scratch_.give(stream_, data_); }
  Doubles(const Doubles&) = delete;
  Doubles& operator=(const Doubles&) = delete;
  double* data() const { return static_cast<double*>(data_); }

 private:
  Scratch& scratch_;
  const Stream stream_;
  void* const data_;
};

}  // namespace

int64_t CudaPort::partials(int64_t rows) const {
  return norm_partials(rows);
}
void CudaPort::rms_norm(Stream s, Rows x, Rows w, Rows y, float* rstd, float eps) {
  cuda::rms_norm(s, x, w, y, rstd, eps);
}
void CudaPort::rms_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                                 Rows dw) {
  cuda::rms_norm_backward(s, dy, x, w, rstd, dx, dw);
}
void CudaPort::layer_norm(Stream s, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                          float eps) {
  cuda::layer_norm(s, x, w, b, y, mean, rstd, eps);
}
void CudaPort::layer_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* mean,
                                   const float* rstd, Rows dx, Rows dw, Rows db) {
  cuda::layer_norm_backward(s, dy, x, w, mean, rstd, dx, dw, db);
}
void CudaPort::sum_rows(Stream s, Rows partial, Rows out, bool accumulate) {
  cuda::sum_rows(s, partial, out, accumulate);
}
void CudaPort::rope(Stream s, Rows x, const float* cos, const float* sin, int64_t,
                    const int64_t* positions, int64_t heads, int64_t dim, float sign) {
  cuda::rope(s, x, cos, sin, positions, heads, dim, sign);
}
void CudaPort::swiglu(Stream s, Rows gate_up, Rows a) {
  cuda::swiglu(s, gate_up, a);
}
void CudaPort::swiglu_backward(Stream s, Rows da, Rows gate_up) {
  cuda::swiglu_backward(s, da, gate_up);
}
void CudaPort::gelu_new(Stream s, Rows x, Rows y) {
  cuda::gelu_new(s, x, y);
}
void CudaPort::gelu_new_backward(Stream s, Rows dy, Rows x) {
  cuda::gelu_new_backward(s, dy, x);
}
void CudaPort::cross_entropy(Stream s, Rows logits, const int64_t* labels, float scale,
                             double* loss) {
  const Doubles losses(scratch_, s, logits.rows);
  cuda::cross_entropy(s, logits, labels, scale, loss, losses.data());
}
void CudaPort::sum_of_squares(Stream s, Rows x, double* sum) {
  const Doubles parts(scratch_, s, square_blocks(x.width));
  cuda::sum_of_squares(s, x, sum, parts.data());
}

}  // namespace dsj::kernels::cuda
