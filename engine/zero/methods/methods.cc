#include "engine/zero/methods/methods.h"

#include <algorithm>
#include <ranges>

namespace dsj::zero {
namespace {

using dsconfig::OptimizerKind;

class Elementwise final : public UpdateMethod {
 public:
  using UpdateMethod::UpdateMethod;
  void step(const StepNumbers& n) override {
    const bool plus = target_.config.optimizer.lora_plus_ratio != 1;
    const optim::Update update = rule_of(n), raised = raised_rule_of(n);
    for (Flat* flat : target_.trained()) flat->step(update, plus ? &raised : nullptr);
  }
};

struct Method {
  OptimizerKind kind;
  std::unique_ptr<UpdateMethod> (*make)(const UpdateTarget&);
};

/// The optimizers that are not elementwise.
constexpr Method kMethods[] = {
    {OptimizerKind::Lamb, make_lamb},
    {OptimizerKind::Muon, make_muon},
    {OptimizerKind::OneBitAdam, make_one_bit_adam},
    {OptimizerKind::OneBitLamb, make_one_bit_lamb},
    {OptimizerKind::ZeroOneAdam, make_zero_one_adam},
};
/// Null if the optimizer is elementwise.
constexpr const Method* method_of(OptimizerKind kind) {
  const auto* found = std::ranges::find(kMethods, kind, &Method::kind);
  return found == std::end(kMethods) ? nullptr : found;
}

/// Whether its descriptor says that an elementwise update is not enough.
constexpr bool needs_method(const dsconfig::Optimizer& one) {
  return one.communicates || one.parameter_sums;
}
static_assert(std::ranges::all_of(dsconfig::kOptimizers | std::views::filter(needs_method),
                                  [](const auto& one) { return method_of(one.defaults.kind); }));

}  // namespace

std::unique_ptr<UpdateMethod> make_update_method(const UpdateTarget& target) {
  if (target.config.optimizer.eight_bit) return make_eight_bit(target);
  const Method* method = method_of(target.config.optimizer.kind);
  return method ? method->make(target) : std::make_unique<Elementwise>(target);
}

}  // namespace dsj::zero
