#include "engine/zero/methods/lamb.h"

#include <ATen/ATen.h>

#include "engine/zero/methods/methods.h"

namespace dsj::zero {
namespace {

class Lamb final : public UpdateMethod {
 public:
  using UpdateMethod::UpdateMethod;
  void step(const StepNumbers& n) override { lamb_step(target_, rule_of(n)); }
};

/// Stores the direction in the gradient's memory if that is fp32 and not a copy: the gradient is
/// not needed after the first pass.
void put_direction(UpdatePart& part) {
  const at::Tensor& grad = part.tensors.grad;
  if (part.in_place && grad.defined() && grad.scalar_type() == at::kFloat)
    part.tensors.direction = grad;
}

}  // namespace

std::unique_ptr<UpdateMethod> make_lamb(const UpdateTarget& target) {
  return std::make_unique<Lamb>(target);
}

std::vector<at::Tensor> lamb_step(const UpdateTarget& target, const optim::Update& update) {
  const std::vector<Flat*> flats = target.trained();
  std::vector<int64_t> slots;
  int64_t all = 0;
  for (const Flat* flat : flats) {
    slots.push_back(static_cast<int64_t>(flat->layout().slots().size()));
    all += slots.back();
  }
  const at::Tensor sums = at::zeros({all, 2}, at::TensorOptions(target.device).dtype(at::kDouble));
  const auto of_flats = sums.split_with_sizes(slots);
  for (size_t i = 0; i < flats.size(); ++i) lamb_moments(*flats[i], update, of_flats[i]);
  if (target.sharded)  // else each rank has the total already
    target.collectives
        .all_reduce(sums.view({-1}), comm::Op::Sum, {comm::Traffic::Control, "lamb norms"})
        ->wait();
  const auto coefficients =
      lamb_coefficients(std::get<optim::LambRule>(update.rule), sums).split_with_sizes(slots);
  for (size_t i = 0; i < flats.size(); ++i) lamb_apply(*flats[i], update, coefficients[i], true);
  return coefficients;
}

void lamb_moments(Flat& flat, const optim::Update& update, const at::Tensor& sums) {
  flat.update_runs(true, false, [&](std::span<UpdatePart> parts) {
    for (UpdatePart& part : parts) {
      part.tensors.sums = sums.select(0, part.slot);
      put_direction(part);
    }
    lamb_moments(update, tensors_of(parts));
  });
}

void lamb_apply(Flat& flat, const optim::Update& update, const at::Tensor& coefficients,
                bool directed) {
  flat.update_runs(true, true, [&](std::span<UpdatePart> parts) {
    for (UpdatePart& part : parts) {
      part.tensors.coefficient = coefficients.narrow(0, part.slot, 1);
      if (directed) put_direction(part);
    }
    update_parts(update, parts);
  });
}

}  // namespace dsj::zero
