// Counts the bytes of device memory that our kernels read and write, by the shapes that they are
// called with: every operand once for each pass that the kernels' text makes over it.
#pragma once

#include "engine/kernels/port.h"

namespace dsj::simulated {

/// Bytes of a number.
inline int64_t size_of(kernels::Type type) {
  return type == kernels::Type::F32 ? 4 : 2;
}

/// Runs everything on `rest`, and adds to `bytes`. Both outlive it. Results of one number are left
/// out.
class Traffic final : public kernels::PartialPort {
 public:
  Traffic(kernels::Port& rest, int64_t& bytes) : PartialPort(rest), bytes_(bytes) {}
  const char* name() const override { return rest().name(); }

  void rms_norm(kernels::Stream, kernels::Rows x, kernels::Rows w, kernels::Rows y, float* rstd,
                float eps) override;
  void rms_norm_backward(kernels::Stream, kernels::Rows dy, kernels::Rows x, kernels::Rows w,
                         const float* rstd, kernels::Rows dx, kernels::Rows dw) override;
  void layer_norm(kernels::Stream, kernels::Rows x, kernels::Rows w, kernels::Rows b,
                  kernels::Rows y, float* mean, float* rstd, float eps) override;
  void layer_norm_backward(kernels::Stream, kernels::Rows dy, kernels::Rows x, kernels::Rows w,
                           const float* mean, const float* rstd, kernels::Rows dx, kernels::Rows dw,
                           kernels::Rows db) override;
  void head_norm(kernels::Stream, kernels::Rows x, kernels::Rows w, int64_t heads, float* rstd,
                 float eps) override;
  void head_norm_backward(kernels::Stream, kernels::Rows dy, kernels::Rows x, kernels::Rows w,
                          int64_t heads, const float* rstd, kernels::Rows dw) override;
  void sum_rows(kernels::Stream, kernels::Rows partial, kernels::Rows out,
                bool accumulate) override;
  void rope(kernels::Stream, kernels::Rows x, const float* cos, const float* sin, int64_t length,
            const int64_t* positions, int64_t heads, int64_t dim, float sign) override;
  void swiglu(kernels::Stream, kernels::Rows gate_up, kernels::Rows a) override;
  void swiglu_backward(kernels::Stream, kernels::Rows da, kernels::Rows gate_up) override;
  void gelu_new(kernels::Stream, kernels::Rows x, kernels::Rows y) override;
  void gelu_new_backward(kernels::Stream, kernels::Rows dy, kernels::Rows x) override;
  void cross_entropy(kernels::Stream, kernels::Rows logits, const int64_t* labels, float scale,
                     double* loss) override;
  void scatter_rows(kernels::Stream, kernels::Rows x, const int64_t* index,
                    kernels::Rows out) override;
  void sum_of_squares(kernels::Stream, kernels::Rows x, double* sum) override;
  void update(kernels::Stream, const optim::Update& update, kernels::Spans spans) override;

 private:
  int64_t& bytes_;
};

}  // namespace dsj::simulated
