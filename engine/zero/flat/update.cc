#include "engine/zero/flat/update.h"

#include <ATen/ATen.h>

#include <vector>

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::zero {
namespace {

/// The spans as the kernels' arguments, with the pointer lists that these refer to.
class Plain {
 public:
  explicit Plain(std::span<const UpdateSpan> all) {
    size_t states = 0;
    for (const UpdateSpan& one : all) states += one.states.size();
    states_.reserve(states);
    for (const UpdateSpan& one : all) add(one, all[0].p.device());
  }
  Plain(const Plain&) = delete;
  kernels::Spans spans() const { return spans_; }
  /// A copy of sums on the spans' device, and the original on another device.
  struct Elsewhere {
    at::Tensor here, sums;
  };
  const std::vector<Elsewhere>& sums() const { return sums_; }

 private:
  void add(const UpdateSpan& one, at::Device place) {
    const auto row = [&](const at::Tensor& tensor) {
      DSJ_CHECK(!tensor.defined() || (tensor.numel() == one.p.numel() && tensor.device() == place));
      return device::row_of(tensor);
    };
    float** const states = states_.data() + states_.size();
    for (const auto& state : one.states) {
      row(state);
      states_.push_back(state.data_ptr<float>());
    }
    const auto p = row(one.p), grad = row(one.grad), low = row(one.low);
    row(one.direction);
    float* const direction = one.direction.defined() ? one.direction.data_ptr<float>() : nullptr;
    spans_.push_back({.n = one.p.numel(),
                      .p = static_cast<float*>(p.data),
                      .grad = grad.data,
                      .grad_type = grad.type,
                      .states = states,
                      .state_count = static_cast<int>(one.states.size()),
                      .low = low.data,
                      .low_type = low.type,
                      .coefficient = coefficient(one.coefficient, place),
                      .sums = sums(one.sums, place),
                      .direction = direction});
  }
  const double* coefficient(const at::Tensor& tensor, at::Device place) {
    if (!tensor.defined()) return nullptr;
    return kept_.emplace_back(tensor.to(place)).const_data_ptr<double>();
  }
  double* sums(const at::Tensor& tensor, at::Device place) {
    if (!tensor.defined()) return nullptr;
    if (tensor.device() == place) return tensor.data_ptr<double>();
    sums_.push_back({at::zeros({2}, tensor.options().device(place)), tensor});
    return sums_.back().here.data_ptr<double>();
  }

  std::vector<float*> states_;
  std::vector<kernels::Span> spans_;
  std::vector<at::Tensor> kept_;
  std::vector<Elsewhere> sums_;
};

}  // namespace

void update_spans(const optim::Update& update, std::span<const UpdateSpan> spans) {
  if (spans.empty()) return;
  const Plain plain(spans);
  device::On(spans[0].p).run(kernels::UpdateSpans{.update = &update, .spans = plain.spans()});
}

void lamb_moments(const optim::Update& update, std::span<const UpdateSpan> spans) {
  if (spans.empty()) return;
  const Plain plain(spans);
  device::On(spans[0].p).run(kernels::LambMoments{.update = &update, .spans = plain.spans()});
  for (const auto& [here, sums] : plain.sums())
    at::Tensor(sums).add_(device::upload(here, sums.device()));
}

at::Tensor lamb_coefficients(const optim::LambRule& rule, const at::Tensor& sums) {
  at::Tensor coefficients = at::empty({sums.size(0)}, sums.options());
  device::On(sums).run(
      kernels::LambCoefficients{.rule = &rule,
                                .sums = device::values_of<const double>(sums),
                                .coefficients = device::values_of<double>(coefficients)});
  return coefficients;
}

void add_sum_of_squares(const at::Tensor& grad, const at::Tensor& sum) {
  DSJ_CHECK(sum.device() == grad.device());
  device::On(grad).run(
      kernels::SumOfSquares{.x = device::row_of(grad), .sum = sum.data_ptr<double>()});
}

}  // namespace dsj::zero
