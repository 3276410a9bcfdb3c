// The device port by libtorch's operations, one per line of the formula.
#include "engine/device/aten_port.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::device {
namespace {

at::Tensor view(const void* data, at::IntArrayRef sizes, at::IntArrayRef strides,
                at::ScalarType type, at::Device place) {
  return at::for_blob(const_cast<void*>(data), sizes)
      .strides(strides)
      .options(at::TensorOptions().dtype(type).device(place))
      .target_device(place)
      .make_tensor();
}

/// [rows, heads, dim] of the first heads of each row.
at::Tensor heads_of(const at::Tensor& x, int64_t heads, int64_t dim) {
  return x.narrow(1, 0, heads * dim).unflatten(1, {heads, dim});
}

struct Normed {
  at::Tensor y, rstd;
};

/// Over the last dimension.
Normed rms_normed(const at::Tensor& x, const at::Tensor& w, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd = wide.square().mean(-1).add_(eps).rsqrt_();
  return {w * (wide * rstd.unsqueeze(-1)).to(x.scalar_type()), rstd};
}

struct NormGradient {
  at::Tensor dx, dw;  ///< dw fp32
};

NormGradient rms_norm_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                               const at::Tensor& rstd) {
  const at::Tensor scale = rstd.unsqueeze(-1);
  const at::Tensor normed = x.to(at::kFloat) * scale;
  const at::Tensor dnormed = (dy * w).to(at::kFloat);
  const at::Tensor mean = (dnormed * normed).mean(-1, /*keepdim=*/true);
  return {(scale * (dnormed - normed * mean)).to(x.scalar_type()),
          (dy.to(at::kFloat) * normed.to(x.scalar_type()).to(at::kFloat)).sum(0)};
}

}  // namespace

at::ScalarType scalar_type(kernels::Type type) {
  switch (type) {
    case kernels::Type::F32:
      return at::kFloat;
    case kernels::Type::BF16:
      return at::kBFloat16;
    case kernels::Type::F16:
      return at::kHalf;
  }
  DSJ_CHECK(false);
}

at::Tensor tensor_of(const kernels::Rows& rows, at::Device place) {
  return view(rows.data, {rows.rows, rows.width}, {rows.stride, 1}, scalar_type(rows.type), place);
}
at::Tensor vector_of(const kernels::Rows& row, at::Device place) {
  DSJ_CHECK(row.rows == 1);
  return view(row.data, {row.width}, {1}, scalar_type(row.type), place);
}
at::Tensor vector_of(const float* data, int64_t n, at::Device place) {
  return view(data, {n}, {1}, at::kFloat, place);
}
at::Tensor vector_of(const double* data, int64_t n, at::Device place) {
  return view(data, {n}, {1}, at::kDouble, place);
}
at::Tensor vector_of(const int64_t* data, int64_t n, at::Device place) {
  return view(data, {n}, {1}, at::kLong, place);
}

namespace {

class AtenPort final : public kernels::Port {
 public:
  using Stream = kernels::Stream;
  using Rows = kernels::Rows;
  using Spans = kernels::Spans;
  explicit AtenPort(at::DeviceType kind) : kind_(kind) {}
  const char* name() const override { return "libtorch"; }
  int64_t partials(int64_t) const override { return 1; }

  void rms_norm(Stream s, Rows x, Rows w, Rows y, float* rstd, float eps) override {
    const at::Device on = place(s);
    const Normed normed = rms_normed(tensor_of(x, on), vector_of(w, on), eps);
    tensor_of(y, on).copy_(normed.y);
    vector_of(rstd, x.rows, on).copy_(normed.rstd);
  }

  void rms_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                         Rows dw) override {
    const at::Device on = place(s);
    const NormGradient gradient = rms_norm_gradient(tensor_of(dy, on), tensor_of(x, on),
                                                    vector_of(w, on), vector_of(rstd, x.rows, on));
    tensor_of(dx, on).add_(gradient.dx);
    tensor_of(dw, on).select(0, 0).copy_(gradient.dw);
  }

  void layer_norm(Stream s, Rows x_rows, Rows w, Rows b, Rows y, float* mean_out, float* rstd_out,
                  float eps) override {
    const at::Device on = place(s);
    const at::Tensor wide = tensor_of(x_rows, on).to(at::kFloat), mean = wide.mean(-1);
    const at::Tensor centered = wide - mean.unsqueeze(-1);
    const at::Tensor rstd = centered.square().mean(-1).add_(eps).rsqrt_();
    tensor_of(y, on).copy_(centered * rstd.unsqueeze(-1) * vector_of(w, on).to(at::kFloat) +
                           vector_of(b, on).to(at::kFloat));
    vector_of(mean_out, x_rows.rows, on).copy_(mean);
    vector_of(rstd_out, x_rows.rows, on).copy_(rstd);
  }

  void layer_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                           Rows dx, Rows dw, Rows db) override {
    const at::Device on = place(s);
    const at::Tensor scale = vector_of(rstd, x.rows, on).unsqueeze(-1);
    const at::Tensor wide = tensor_of(dy, on).to(at::kFloat);
    const at::Tensor unit =
        (tensor_of(x, on).to(at::kFloat) - vector_of(mean, x.rows, on).unsqueeze(-1)) * scale;
    const at::Tensor dunit = wide * vector_of(w, on).to(at::kFloat);
    const at::Tensor inner = dunit - dunit.mean(-1, true) - unit * (dunit * unit).mean(-1, true);
    const at::Tensor out = tensor_of(dx, on);
    out.add_((scale * inner).to(out.scalar_type()));
    tensor_of(dw, on).select(0, 0).copy_((wide * unit).sum(0));
    tensor_of(db, on).select(0, 0).copy_(wide.sum(0));
  }

  void head_norm(Stream s, Rows x, Rows w, int64_t heads, float* rstd, float eps) override {
    const at::Device on = place(s);
    const at::Tensor view = heads_of(tensor_of(x, on), heads, w.width);
    const Normed normed = rms_normed(view, vector_of(w, on), eps);
    view.copy_(normed.y);
    vector_of(rstd, x.rows * heads, on).copy_(normed.rstd.reshape({-1}));
  }

  void head_norm_backward(Stream s, Rows dy, Rows x, Rows w, int64_t heads, const float* rstd,
                          Rows dw) override {
    const at::Device on = place(s);
    const at::Tensor part = heads_of(tensor_of(dy, on), heads, w.width);
    const NormGradient gradient =
        rms_norm_gradient(part, heads_of(tensor_of(x, on), heads, w.width), vector_of(w, on),
                          vector_of(rstd, x.rows * heads, on).view({x.rows, heads}));
    part.copy_(gradient.dx);
    tensor_of(dw, on).select(0, 0).copy_(gradient.dw.sum(0));
  }

  void sum_rows(Stream s, Rows partial, Rows out, bool accumulate) override {
    const at::Device on = place(s);
    const at::Tensor to = vector_of(out, on), sum = tensor_of(partial, on).sum(0);
    accumulate ? to.add_(sum.to(to.scalar_type())) : to.copy_(sum);
  }

  void rope(Stream s, Rows x, const float* cos_data, const float* sin_data, int64_t length,
            const int64_t* positions, int64_t heads, int64_t dim, float sign) override {
    const at::Device on = place(s);
    const int64_t half = dim / 2;
    const at::Tensor view =
        tensor_of(x, on).narrow(1, 0, heads * dim).unflatten(1, {heads, 2, half});
    const auto of_rows = [&](const float* table) {  // [N, 1, dim / 2]
      return vector_of(table, length * half, on)
          .view({length, half})
          .index_select(0, vector_of(positions, x.rows, on))
          .unsqueeze(1);
    };
    const at::Tensor cos = of_rows(cos_data).to(view.scalar_type());
    const at::Tensor sin = of_rows(sin_data).mul_(sign).to(view.scalar_type());
    const at::Tensor lo = view.select(2, 0).clone(), hi = view.select(2, 1).clone();
    view.select(2, 0).copy_(lo * cos + -hi * sin);
    view.select(2, 1).copy_(hi * cos + lo * sin);
  }

  void swiglu(Stream s, Rows gate_up, Rows a) override {
    const at::Device on = place(s);
    const auto parts = tensor_of(gate_up, on).chunk(2, 1);
    tensor_of(a, on).copy_(at::silu(parts[0]) * parts[1]);
  }

  void swiglu_backward(Stream s, Rows da_rows, Rows gate_up) override {
    const at::Device on = place(s);
    const at::Tensor da = tensor_of(da_rows, on);
    const auto parts = tensor_of(gate_up, on).chunk(2, 1);
    const at::Tensor gate = parts[0].clone(), up = parts[1].clone();
    parts[0].copy_(at::silu_backward(da * up, gate));
    parts[1].copy_(da * at::silu(gate));
  }

  void gelu_new(Stream s, Rows x_rows, Rows y) override {
    const at::Device on = place(s);
    const at::Tensor x = tensor_of(x_rows, on);
    const at::Tensor inner = (at::pow(x, 3.0) * 0.044715 + x) * std::sqrt(2 / std::numbers::pi);
    tensor_of(y, on).copy_(x * 0.5 * (at::tanh(inner) + 1.0));
  }

  void gelu_new_backward(Stream s, Rows dy, Rows x_rows) override {
    const at::Device on = place(s);
    const at::Tensor x = tensor_of(x_rows, on);
    x.copy_(at::gelu_backward(tensor_of(dy, on).to(at::kFloat), x.to(at::kFloat), "tanh"));
  }

  void cross_entropy(Stream s, Rows logits_rows, const int64_t* labels, float scale,
                     double* loss) override {
    const at::Device on = place(s);
    const at::Tensor logits = tensor_of(logits_rows, on);
    const at::Tensor log_softmax = logits.to(at::kFloat).log_softmax(-1);
    const at::Tensor index = vector_of(labels, logits_rows.rows, on).unsqueeze(-1);
    vector_of(loss, 1, on).sub_(log_softmax.gather(-1, index).sum(at::kDouble));
    at::Tensor gradient = log_softmax.exp();
    gradient.scatter_add_(-1, index, at::full_like(index, -1.0, gradient.options()));
    logits.copy_(gradient.mul_(scale));
  }

  void scatter_rows(Stream s, Rows x, const int64_t* index, Rows out) override {
    const at::Device on = place(s);
    const at::Tensor to = tensor_of(out, on), from = tensor_of(x, on).to(at::kFloat),
                     rows = vector_of(index, x.rows, on);
    if (to.scalar_type() == at::kFloat) {
      to.index_add_(0, rows, from);
      return;
    }
    // The rows that go to one place are added up at one of them, in fp32. Then each of them writes
    // the whole sum there: the same value, so it does not matter which comes last.
    const at::Tensor one_of_them = at::zeros({out.rows}, rows.options())
                                       .index_copy_(0, rows, at::arange(x.rows, rows.options()))
                                       .index_select(0, rows);
    const at::Tensor sums =
        at::zeros_like(from).index_add_(0, one_of_them, from).index_select(0, one_of_them);
    to.index_copy_(0, rows, sums.add(to.index_select(0, rows)).to(to.scalar_type()));
  }

  void sum_of_squares(Stream s, Rows x, double* sum) override {
    const at::Device on = place(s);
    vector_of(sum, 1, on).add_(vector_of(x, on).to(at::kDouble).square().sum());
  }

  void update(Stream s, const optim::Update& update, Spans spans) override {
    for (const kernels::Span& span : spans) aten_update(place(s), update, span);
  }
  void lamb_moments(Stream s, const optim::Update& update, Spans spans) override {
    for (const kernels::Span& span : spans) aten_lamb_moments(place(s), update, span);
  }
  void lamb_coefficients(Stream s, const optim::LambRule& rule, const double* sums,
                         double* coefficients, int64_t n) override {
    aten_lamb_coefficients(place(s), rule, sums, coefficients, n);
  }

 private:
  at::Device place(Stream stream) const {
    return kind_ == at::kCPU ? at::Device(kind_)
                             : at::Device(kind_, static_cast<at::DeviceIndex>(stream.device));
  }
  const at::DeviceType kind_;
};

}  // namespace

kernels::Port& aten_port(at::DeviceType kind) {
  static std::mutex mutex;
  static std::map<at::DeviceType, std::unique_ptr<AtenPort>> ports;
  const std::lock_guard lock(mutex);
  auto& port = ports[kind];
  if (!port) port = std::make_unique<AtenPort>(kind);
  return *port;
}

}  // namespace dsj::device
