#include "engine/zero/methods/one_bit.h"

#include <ATen/ATen.h>

#include "engine/memory/counting_allocator.h"
#include "engine/zero/flat/update.h"
#include "engine/zero/methods/methods.h"
#include "job/plan/one_bit_plan.h"

namespace dsj::zero {

OneBit::OneBit(const UpdateTarget& target)
    : UpdateMethod(target),
      errors_(
          plan::one_bit_plan(target.units, target.plan, target.config, target.collectives.world()),
          target.collectives, target.device) {}

bool OneBit::keeps_gradients_local(int64_t updates) const {
  return plan::keeps_gradients_local(target_.config, target_.collectives.world()) &&
         optim::keeps_gradients_local(optim::one_bit_phase(target_.config, updates));
}

void OneBit::step(const StepNumbers& n) {
  const auto update = optim::one_bit_update(target_.config, n.rates, n.updates, n.grad_scale);
  if (update.phase == optim::OneBitPhase::Discarded) return;
  if (update.phase == optim::OneBitPhase::WarmUp) return warm_up(update);
  compressed(update);
}

Status OneBit::restore(checkpoint::SavedRun& saved) {
  sent_.reset();
  const Status read = errors_.restore(saved);
  dropped_ = errors_.dropped();
  return read;
}

std::string OneBit::dropped() const {
  if (!dropped_) return "";
  return "the checkpoint's compression errors belong to other ranks or vectors: they start at zero";
}

void OneBit::apply(const optim::Update& update) {
  for (Flat* flat : target_.trained()) flat->step(update);
}

at::Tensor OneBit::last_momentum(size_t flat, size_t slot, int64_t first, int64_t n) {
  if (sent_) {
    const at::Tensor m = at::empty({n}, at::TensorOptions(target_.device).dtype(at::kFloat));
    errors_.read(*sent_, flat, slot, first, m);
    return m;
  }
  constexpr int kMomentum = 1;  // index of exp_avg in a flat's states
  if (!gathered_.defined()) gathered_ = target_.flats[flat]->gather_state(kMomentum);
  return gathered_.narrow(0, target_.flats[flat]->layout().slots()[slot].offset + first, n);
}

void OneBit::follow(const at::Tensor& m, const at::Tensor& g, const optim::OneBitUpdate& update) {
  m.mul_(update.rule.beta1).add_(g.mul(update.grad_scale).mul_(1 - update.rule.beta1));
}

namespace {

class OneBitAdam final : public OneBit {
 public:
  using OneBit::OneBit;

  /// With one rank there are no errors to restore.
  Status restore(checkpoint::SavedRun& saved) override {
    return alone() ? Status{} : OneBit::restore(saved);
  }

 private:
  void compressed(const optim::OneBitUpdate& update) override {
    if (alone()) return apply(update.frozen_variance());
    memory::MemoryScope scope(memory::Class::Buckets);
    contribute([&](size_t f, size_t s, int64_t first, const at::Tensor& g) {
      const at::Tensor m = last_momentum(f, s, first, g.numel());
      follow(m, g, update);
      return m;
    });
    sent_ = errors_.mean();
    const optim::Update moments_stay = update.frozen_moments();
    for (size_t f = 0; f < target_.flats.size(); ++f) {
      if (target_.flats[f]->frozen()) continue;
      target_.flats[f]->for_owned(true, [&](int slot, int64_t first, const UpdateSpan& span) {
        for_tiles(target_.device, span.p.numel(), [&](int64_t begin, int64_t count) {
          const SpanPart part(span, begin, count);
          errors_.read(*sent_, f, static_cast<size_t>(slot), first + begin, part.span().states[0]);
          update_span(moments_stay, part.span());
        });
      });
    }
  }
};

}  // namespace

std::unique_ptr<UpdateMethod> make_one_bit_adam(const UpdateTarget& target) {
  return std::make_unique<OneBitAdam>(target);
}

}  // namespace dsj::zero
