// The device port by libtorch's operations. For this room: callers take aten_port() of device.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "engine/kernels/port.h"

namespace dsj::device {

at::ScalarType scalar_type(kernels::Type type);
/// A view of memory on `place`: [rows, width], or [width] for one row.
at::Tensor tensor_of(const kernels::Rows& rows, at::Device place);
at::Tensor vector_of(const kernels::Rows& row, at::Device place);
/// A view of n values.
at::Tensor vector_of(const float* data, int64_t n, at::Device place);
at::Tensor vector_of(const double* data, int64_t n, at::Device place);
at::Tensor vector_of(const int64_t* data, int64_t n, at::Device place);

class AtenPort final : public kernels::Port {
 public:
  using Stream = kernels::Stream;
  using Rows = kernels::Rows;
  explicit AtenPort(at::DeviceType kind) : kind_(kind) {}
  const char* name() const override { return "libtorch"; }
  int64_t partials(int64_t) const override { return 1; }
  void rms_norm(Stream, Rows x, Rows w, Rows y, float* rstd, float eps) override;
  void rms_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                         Rows dw) override;
  void layer_norm(Stream, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                  float eps) override;
  void layer_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                           Rows dx, Rows dw, Rows db) override;
  void head_norm(Stream, Rows x, Rows w, int64_t heads, float* rstd, float eps) override;
  void head_norm_backward(Stream, Rows dy, Rows x, Rows w, int64_t heads, const float* rstd,
                          Rows dw) override;
  void sum_rows(Stream, Rows partial, Rows out, bool accumulate) override;
  void rope(Stream, Rows x, const float* cos, const float* sin, int64_t length,
            const int64_t* positions, int64_t heads, int64_t dim, float sign) override;
  void swiglu(Stream, Rows gate_up, Rows a) override;
  void swiglu_backward(Stream, Rows da, Rows gate_up) override;
  void gelu_new(Stream, Rows x, Rows y) override;
  void gelu_new_backward(Stream, Rows dy, Rows x) override;
  void cross_entropy(Stream, Rows logits, const int64_t* labels, float scale,
                     double* loss) override;
  void scatter_rows(Stream, Rows x, const int64_t* index, Rows out) override;
  void sum_of_squares(Stream, Rows x, double* sum) override;
  void update(Stream, const optim::Update& update, const kernels::Span& span,
              const double* coefficient) override;
  void lamb_moments(Stream, const optim::Update& update, const kernels::Span& span,
                    double* sums) override;
  void lamb_coefficients(Stream, const optim::LambRule& rule, const double* sums,
                         double* coefficients, int64_t n) override;

 private:
  at::Device place(Stream stream) const {
    return kind_ == at::kCPU ? at::Device(kind_)
                             : at::Device(kind_, static_cast<at::DeviceIndex>(stream.device));
  }
  const at::DeviceType kind_;
};

}  // namespace dsj::device
