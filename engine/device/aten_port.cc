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

/// The first heads of each row as [rows, heads, dim].
at::Tensor heads_of(const at::Tensor& x, int64_t heads, int64_t dim) {
  return x.narrow(1, 0, heads * dim).unflatten(1, {heads, dim});
}

struct Normed {
  at::Tensor y, rstd;
};

/// RMS norm over the last dimension.
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
at::Tensor vector_of(std::span<const float> values, at::Device place) {
  return view(values.data(), {std::ssize(values)}, {1}, at::kFloat, place);
}
at::Tensor vector_of(std::span<const double> values, at::Device place) {
  return view(values.data(), {std::ssize(values)}, {1}, at::kDouble, place);
}
at::Tensor vector_of(std::span<const int64_t> values, at::Device place) {
  return view(values.data(), {std::ssize(values)}, {1}, at::kLong, place);
}

namespace {

at::Tensor number_of(double* value, at::Device place) {
  return vector_of(std::span(value, 1), place);
}

void compute(at::Device on, const kernels::RmsNorm& op) {
  const Normed normed = rms_normed(tensor_of(op.x, on), vector_of(op.w, on), op.eps);
  tensor_of(op.y, on).copy_(normed.y);
  vector_of(op.rstd, on).copy_(normed.rstd);
}

void compute(at::Device on, const kernels::RmsNormBackward& op) {
  const NormGradient gradient = rms_norm_gradient(tensor_of(op.dy, on), tensor_of(op.x, on),
                                                  vector_of(op.w, on), vector_of(op.rstd, on));
  tensor_of(op.dx, on).add_(gradient.dx);
  tensor_of(op.dw, on).select(0, 0).copy_(gradient.dw);
}

void compute(at::Device on, const kernels::LayerNorm& op) {
  const at::Tensor wide = tensor_of(op.x, on).to(at::kFloat), mean = wide.mean(-1);
  const at::Tensor centered = wide - mean.unsqueeze(-1);
  const at::Tensor rstd = centered.square().mean(-1).add_(op.eps).rsqrt_();
  tensor_of(op.y, on).copy_(centered * rstd.unsqueeze(-1) * vector_of(op.w, on).to(at::kFloat) +
                            vector_of(op.b, on).to(at::kFloat));
  vector_of(op.mean, on).copy_(mean);
  vector_of(op.rstd, on).copy_(rstd);
}

void compute(at::Device on, const kernels::LayerNormBackward& op) {
  const at::Tensor scale = vector_of(op.rstd, on).unsqueeze(-1);
  const at::Tensor wide = tensor_of(op.dy, on).to(at::kFloat);
  const at::Tensor unit =
      (tensor_of(op.x, on).to(at::kFloat) - vector_of(op.mean, on).unsqueeze(-1)) * scale;
  const at::Tensor dunit = wide * vector_of(op.w, on).to(at::kFloat);
  const at::Tensor inner = dunit - dunit.mean(-1, true) - unit * (dunit * unit).mean(-1, true);
  const at::Tensor out = tensor_of(op.dx, on);
  out.add_((scale * inner).to(out.scalar_type()));
  tensor_of(op.dw, on).select(0, 0).copy_((wide * unit).sum(0));
  tensor_of(op.db, on).select(0, 0).copy_(wide.sum(0));
}

void compute(at::Device on, const kernels::HeadNorm& op) {
  const at::Tensor view = heads_of(tensor_of(op.x, on), op.heads, op.w.width);
  const Normed normed = rms_normed(view, vector_of(op.w, on), op.eps);
  view.copy_(normed.y);
  vector_of(op.rstd, on).copy_(normed.rstd.reshape({-1}));
}

void compute(at::Device on, const kernels::HeadNormBackward& op) {
  const at::Tensor part = heads_of(tensor_of(op.dy, on), op.heads, op.w.width);
  const NormGradient gradient =
      rms_norm_gradient(part, heads_of(tensor_of(op.x, on), op.heads, op.w.width),
                        vector_of(op.w, on), vector_of(op.rstd, on).view({op.x.rows, op.heads}));
  part.copy_(gradient.dx);
  tensor_of(op.dw, on).select(0, 0).copy_(gradient.dw.sum(0));
}

void compute(at::Device on, const kernels::SumRows& op) {
  const at::Tensor to = vector_of(op.out, on), sum = tensor_of(op.partial, on).sum(0);
  op.accumulate ? to.add_(sum.to(to.scalar_type())) : to.copy_(sum);
}

void compute(at::Device on, const kernels::Rope& op) {
  const int64_t half = op.dim / 2;
  const at::Tensor view =
      tensor_of(op.x, on).narrow(1, 0, op.heads * op.dim).unflatten(1, {op.heads, 2, half});
  const auto of_rows = [&](std::span<const float> table) {  // [N, 1, dim / 2]
    return vector_of(table, on)
        .view({-1, half})
        .index_select(0, vector_of(op.positions, on))
        .unsqueeze(1);
  };
  const at::Tensor cos = of_rows(op.cos).to(view.scalar_type());
  const at::Tensor sin = of_rows(op.sin).mul_(op.sign).to(view.scalar_type());
  const at::Tensor lo = view.select(2, 0).clone(), hi = view.select(2, 1).clone();
  view.select(2, 0).copy_(lo * cos + -hi * sin);
  view.select(2, 1).copy_(hi * cos + lo * sin);
}

void compute(at::Device on, const kernels::Swiglu& op) {
  const auto parts = tensor_of(op.gate_up, on).chunk(2, 1);
  tensor_of(op.a, on).copy_(at::silu(parts[0]) * parts[1]);
}

void compute(at::Device on, const kernels::SwigluBackward& op) {
  const at::Tensor da = tensor_of(op.da, on);
  const auto parts = tensor_of(op.gate_up, on).chunk(2, 1);
  const at::Tensor gate = parts[0].clone(), up = parts[1].clone();
  parts[0].copy_(at::silu_backward(da * up, gate));
  parts[1].copy_(da * at::silu(gate));
}

void compute(at::Device on, const kernels::GeluNew& op) {
  const at::Tensor x = tensor_of(op.x, on);
  const at::Tensor inner = (at::pow(x, 3.0) * 0.044715 + x) * std::sqrt(2 / std::numbers::pi);
  tensor_of(op.y, on).copy_(x * 0.5 * (at::tanh(inner) + 1.0));
}

void compute(at::Device on, const kernels::GeluNewBackward& op) {
  const at::Tensor x = tensor_of(op.x, on);
  x.copy_(at::gelu_backward(tensor_of(op.dy, on).to(at::kFloat), x.to(at::kFloat), "tanh"));
}

void compute(at::Device on, const kernels::CrossEntropy& op) {
  const at::Tensor logits = tensor_of(op.logits, on);
  const at::Tensor log_softmax = logits.to(at::kFloat).log_softmax(-1);
  const at::Tensor index = vector_of(op.labels, on).unsqueeze(-1);
  number_of(op.loss, on).sub_(log_softmax.gather(-1, index).sum(at::kDouble));
  at::Tensor gradient = log_softmax.exp();
  gradient.scatter_add_(-1, index, at::full_like(index, -1.0, gradient.options()));
  logits.copy_(gradient.mul_(op.scale));
}

void compute(at::Device on, const kernels::ScatterRows& op) {
  const at::Tensor to = tensor_of(op.out, on), from = tensor_of(op.x, on).to(at::kFloat),
                   rows = vector_of(op.index, on);
  if (to.scalar_type() == at::kFloat) {
    to.index_add_(0, rows, from);
    return;
  }
  // Rows with the same index are added up in fp32 at one of them. Then each of them writes the
  // whole sum to the output: the values are equal, so the order of writes does not matter.
  const at::Tensor one_of_them = at::zeros({op.out.rows}, rows.options())
                                     .index_copy_(0, rows, at::arange(op.x.rows, rows.options()))
                                     .index_select(0, rows);
  const at::Tensor sums =
      at::zeros_like(from).index_add_(0, one_of_them, from).index_select(0, one_of_them);
  to.index_copy_(0, rows, sums.add(to.index_select(0, rows)).to(to.scalar_type()));
}

void compute(at::Device on, const kernels::SumOfSquares& op) {
  number_of(op.sum, on).add_(vector_of(op.x, on).to(at::kDouble).square().sum());
}

using device::compute;  // including those of aten_update.cc

class AtenPort final : public kernels::UniformPort<AtenPort> {
 public:
  explicit AtenPort(at::DeviceType kind) : kind_(kind) {}
  const char* name() const override { return "libtorch"; }
  int64_t partials(int64_t) const override { return 1; }
  template <typename Op>
  void each(kernels::Stream stream, const Op& op, const char*) const {
    compute(kind_ == at::kCPU ? at::Device(kind_)
                              : at::Device(kind_, static_cast<at::DeviceIndex>(stream.device)),
            op);
  }

 private:
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
