#include "engine/zero/update.h"

#include <ATen/ATen.h>

#include <vector>

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::zero {
namespace {

/// The span as the kernels take it, with the list of pointers that it refers to.
class Plain {
 public:
  explicit Plain(const UpdateSpan& tensors) {
    const auto row = [&](const at::Tensor& tensor) {
      DSJ_CHECK(!tensor.defined() ||
                (tensor.numel() == tensors.p.numel() && tensor.device() == tensors.p.device()));
      return device::row_of(tensor);
    };
    for (const auto& state : tensors.states) {
      row(state);
      states_.push_back(state.data_ptr<float>());
    }
    const auto grad = row(tensors.grad), low = row(tensors.low);
    span_ = {.n = tensors.p.numel(),
             .p = tensors.p.data_ptr<float>(),
             .grad = grad.data,
             .grad_type = grad.type,
             .states = states_.data(),
             .state_count = static_cast<int>(states_.size()),
             .low = low.data,
             .low_type = low.type};
  }
  Plain(const Plain&) = delete;
  const kernels::Span& span() const { return span_; }

 private:
  std::vector<float*> states_;
  kernels::Span span_;
};

}  // namespace

void update_span(const optim::Update& update, const UpdateSpan& span,
                 const at::Tensor& coefficient) {
  const device::On on(span.p);
  const at::Tensor here = coefficient.defined() ? coefficient.to(span.p.device()) : coefficient;
  on->update(on.stream, update, Plain(span).span(),
             here.defined() ? here.const_data_ptr<double>() : nullptr);
}

void lamb_moments(const optim::Update& update, const UpdateSpan& span, const at::Tensor& sums) {
  const device::On on(span.p);
  const bool same = sums.device() == span.p.device();
  const at::Tensor here = same ? sums : at::zeros({2}, span.p.options().dtype(at::kDouble));
  on->lamb_moments(on.stream, update, Plain(span).span(), here.data_ptr<double>());
  if (!same) at::Tensor(sums).add_(device::upload(here, sums.device()));
}

at::Tensor lamb_coefficients(const optim::LambRule& rule, const at::Tensor& sums) {
  const device::On on(sums);
  DSJ_CHECK(sums.is_contiguous());
  at::Tensor coefficients = at::empty({sums.size(0)}, sums.options());
  on->lamb_coefficients(on.stream, rule, sums.const_data_ptr<double>(),
                        coefficients.data_ptr<double>(), sums.size(0));
  return coefficients;
}

}  // namespace dsj::zero
