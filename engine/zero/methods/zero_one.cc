// ZeroOneAdam (methods.h).
#include <ATen/ATen.h>

#include <functional>

#include "engine/memory/counting_allocator.h"
#include "engine/zero/flat/update.h"
#include "engine/zero/methods/methods.h"
#include "engine/zero/methods/one_bit.h"

namespace dsj::zero {
namespace {

// A rank's own state between two synchronizations. Names in a checkpoint; each has every rank's
// elements of a parameter, one rank after the other.
constexpr char kMaster[] = "local_master", kMomentum[] = "local_exp_avg",
               kMoved[] = "momentum_accumulator", kMet[] = "met_master", kRates[] = "local_rates",
               kAll[] = "all";

class ZeroOneAdam final : public OneBit {
 public:
  using OneBit::OneBit;

  Status for_pieces(const checkpoint::EmitPiece& emit) override {
    DSJ_TRY_STATUS(OneBit::for_pieces(emit));
    if (!apart_) return {};
    DSJ_TRY_STATUS(emit({kRates, kAll, target_.collectives.rank(), std::span(&rates_, 1)}));
    return for_own(
        [&](const char* state, const layout::Slot& slot, int64_t offset, const at::Tensor& own) {
          const at::Tensor host = own.cpu();
          return emit({state, slot.name, offset, elements_of(host)});
        });
  }

  void add_extents(std::vector<checkpoint::Extent>& extents) const override {
    OneBit::add_extents(extents);
    if (!apart_) return;
    const int64_t world = target_.collectives.world();
    extents.push_back({kRates, kAll, world});
    for (const Flat* flat : target_.trained()) {
      for (const char* state : {kMaster, kMomentum, kMoved, kMet})
        for (const auto& slot : flat->layout().slots())
          extents.push_back({state, slot.name, world * slot.numel});
    }
  }

  bool restores_whole(const checkpoint::SavedRun& saved) const override {
    return saved.elements(kRates, kAll) == target_.collectives.world();
  }

  Status restore(checkpoint::SavedRun& saved) override {
    DSJ_TRY_STATUS(OneBit::restore(saved));
    moved_.clear();
    met_.clear();
    rates_ = 0;
    apart_ = false;
    const auto ranks = saved.elements(kRates, kAll);
    dropped_ = dropped_ || (ranks && *ranks != target_.collectives.world());
    if (!ranks || dropped_) return {};
    DSJ_TRY_STATUS(saved.read(kRates, kAll, target_.collectives.rank(), std::span(&rates_, 1)));
    apart_ = true;
    allocate();
    return for_own(
        [&](const char* state, const layout::Slot& slot, int64_t offset, const at::Tensor& own) {
          const at::Tensor host = at::empty({own.numel()}, at::kFloat);
          const auto read = saved.read(state, slot.name, offset, elements_of(host));
          own.copy_(host);
          return read;
        });
  }

 private:
  void compressed(const optim::OneBitUpdate& update) override {
    memory::MemoryScope scope(memory::Class::Buckets);
    if (update.phase == optim::OneBitPhase::CompressedGradient) return mean_gradient(update);
    if (update.local.first) errors_.clear();
    for (Flat* flat : target_.trained()) flat->take_whole();
    if (moved_.empty()) allocate();
    move(update);
    if (update.local.meets) meet(update);
  }

  void allocate() {
    memory::MemoryScope scope(memory::Class::Optimizer);
    for (const Flat* flat : target_.flats) {
      moved_.push_back(at::zeros({flat->frozen() ? 0 : flat->layout().numel()},
                                 at::TensorOptions(target_.device).dtype(at::kFloat)));
      met_.push_back(at::zeros_like(moved_.back()));
    }
  }

  /// A run of a parameter on this rank: its position and tensors, its movement since the last
  /// synchronization, and its value at that time [n].
  struct Part {
    size_t flat, slot;
    int64_t first;
    const UpdateSpan& span;
    at::Tensor moved, met;  ///< undefined before the first local step
  };

  /// Calls f(part) for all parameters.
  void for_parts(bool writes, const std::function<void(const Part&)>& f) {
    for (size_t i = 0; i < target_.flats.size(); ++i) {
      if (target_.flats[i]->frozen()) continue;
      target_.flats[i]->for_owned(writes, [&](int slot, int64_t first, const UpdateSpan& span) {
        const auto s = static_cast<size_t>(slot);
        const int64_t offset = target_.flats[i]->layout().slots()[s].offset + first;
        at::Tensor moved, met;
        if (!moved_.empty()) {
          moved = moved_[i].narrow(0, offset, span.p.numel());
          met = met_[i].narrow(0, offset, span.p.numel());
        }
        f({i, s, first, span, moved, met});
      });
    }
  }

  /// The same in tiles.
  void for_part_tiles(bool writes, const std::function<void(const Part&)>& f) {
    for_parts(writes, [&](const Part& whole) {
      for_tiles(target_.device, whole.span.p.numel(), [&](int64_t first, int64_t count) {
        const SpanPart part(whole.span, first, count);
        at::Tensor moved, met;
        if (whole.moved.defined()) {
          moved = whole.moved.narrow(0, first, count);
          met = whole.met.narrow(0, first, count);
        }
        f({whole.flat, whole.slot, whole.first + first, part.span(), moved, met});
      });
    });
  }

  /// Calls f(state, parameter's slot, offset among all ranks' elements, tensor) for this rank's own
  /// state. Stops at the first error.
  using VisitOwn =
      std::function<Status(const char*, const layout::Slot&, int64_t, const at::Tensor&)>;
  Status for_own(const VisitOwn& f) {
    Status status;
    for_parts(true, [&](const Part& part) {
      const auto& slot = target_.flats[part.flat]->layout().slots()[part.slot];
      const int64_t offset = target_.collectives.rank() * slot.numel + part.first;
      if (status) status = f(kMaster, slot, offset, part.span.p);
      if (status) status = f(kMomentum, slot, offset, part.span.states[0]);
      if (status) status = f(kMoved, slot, offset, part.moved);
      if (status) status = f(kMet, slot, offset, part.met);
      refresh(part.span);
    });
    return status;
  }

  static void refresh(const UpdateSpan& span) {
    if (span.low.defined()) at::Tensor(span.low).copy_(span.p);
  }

  /// Between two updates of the variance, the momentum takes the compressed mean of the gradients.
  /// With one rank the momentum is unchanged, as in DeepSpeed.
  void mean_gradient(const optim::OneBitUpdate& update) {
    if (alone()) return apply(update.frozen_moments());
    contribute(
        [&](size_t, size_t, int64_t, const at::Tensor& g) { return g.mul(update.grad_scale); });
    const comm::SignMeans means = errors_.mean();
    optim::Update by_mean = update.frozen_variance();
    by_mean.grad_scale = 1;
    for_part_tiles(true, [&](const Part& part) {
      const at::Tensor mean = at::empty_like(part.span.p);
      errors_.read(means, part.flat, part.slot, part.first, mean);
      update_span(by_mean, {part.span.p, mean, part.span.states, part.span.low});
    });
  }

  /// One local step of this rank.
  void move(const optim::OneBitUpdate& update) {
    const optim::AdamRule& rule = update.rule;
    const bool begins = !apart_;
    rates_ += static_cast<float>(rule.lr);
    apart_ = true;
    for_part_tiles(true, [&](const Part& part) {
      const UpdateSpan& span = part.span;
      if (begins) part.met.copy_(span.p);
      const at::Tensor &m = span.states[0], &v = span.states[1];
      follow(m, span.grad.to(at::kFloat), update);
      at::Tensor by = m.div(v.sqrt().add_(rule.eps));
      if (rule.weight_decay != 0) by.add_(span.p.mul(rule.weight_decay));
      by.mul_(rule.lr);
      span.p.sub_(by);
      part.moved.sub_(by);
      refresh(span);
    });
  }

  /// Synchronizes the ranks: each undoes its local steps and applies their mean instead, which also
  /// gives the momentum. DeepSpeed undoes them by addition, which leaves other last bits on every
  /// rank; here all ranks are equal again.
  void meet(const optim::OneBitUpdate& update) {
    const double eps = update.rule.eps;
    for_part_tiles(true, [&](const Part& part) {
      part.span.p.copy_(part.met);
      part.moved.mul_(part.span.states[1].sqrt().add_(eps));
      if (!alone())
        errors_.worker(part.flat, part.slot, part.first, part.moved.numel()).add_(part.moved);
      refresh(part.span);
    });
    const auto means = alone() ? comm::SignMeans() : errors_.mean();
    for_part_tiles(true, [&](const Part& part) {
      if (!alone()) errors_.read(means, part.flat, part.slot, part.first, part.moved);
      // If every rate was 0, nothing moved, and the momentum cannot be derived.
      if (rates_ != 0) part.span.states[0].copy_(part.moved).div_(-rates_);
      part.span.p.add_(part.moved.div(part.span.states[1].sqrt().add_(eps)));
      part.moved.zero_();
      refresh(part.span);
    });
    rates_ = 0;
    apart_ = false;
  }

  std::vector<at::Tensor> moved_;  ///< [flat][numel]: movement since the last meet(); empty means 0
  std::vector<at::Tensor> met_;    ///< [flat][numel]: the masters at the last meet()
  float rates_ = 0;                ///< sum of the learning rates since the last meet()
  bool apart_ = false;  ///< the ranks' parameters differ: they moved since the last meet()
};

}  // namespace

std::unique_ptr<UpdateMethod> make_zero_one_adam(const UpdateTarget& target) {
  return std::make_unique<ZeroOneAdam>(target);
}

}  // namespace dsj::zero
