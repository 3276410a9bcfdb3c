// OneBitLamb's compressed steps. Formulas: DeepSpeed 0.18.9's OnebitLamb, described in
// docs/optimizers.md.
#include <ATen/ATen.h>

#include <cmath>
#include <optional>
#include <utility>

#include "engine/memory/counting_allocator.h"
#include "engine/zero/methods/lamb.h"
#include "engine/zero/methods/methods.h"
#include "engine/zero/methods/one_bit.h"

namespace dsj::zero {
namespace {

// Names of states in a checkpoint. The first three have one element per parameter.
constexpr char kFrozen[] = "lamb_coeff_freeze", kFactor[] = "last_factor",
               kScaling[] = "scaling_coeff", kPadding[] = "dummy_exp_avg", kAll[] = "all";

/// State of the parameters of a flat: [slots] fp32 each, equal on all ranks.
struct Kept {
  at::Tensor frozen;   ///< mean of the coefficients before the freeze; from 0, no bias correction
  at::Tensor factor;   ///< of the last compressed step
  at::Tensor scaling;  ///< of the momentum on the wire; undefined before the first compressed step
};

class OneBitLamb final : public OneBit {
 public:
  explicit OneBitLamb(const UpdateTarget& target) : OneBit(target) {
    memory::MemoryScope scope(memory::Class::Optimizer);
    const auto options = at::TensorOptions(target_.device).dtype(at::kFloat);
    kept_.resize(target_.flats.size());
    for (size_t f = 0; f < target_.flats.size(); ++f) {
      if (target_.flats[f]->frozen()) continue;
      trained_.push_back(f);
      const auto slots = static_cast<int64_t>(target_.flats[f]->layout().slots().size());
      kept_[f] = {at::zeros({slots}, options), at::ones({slots}, options), {}};
    }
  }

  Status for_pieces(const checkpoint::EmitPiece& emit) override {
    DSJ_TRY_STATUS(OneBit::for_pieces(emit));
    if (target_.collectives.rank() != 0) return {};
    if (padding_.defined() && padding_.numel() > 0) {
      const at::Tensor host = padding_.cpu();
      DSJ_TRY_STATUS(emit({kPadding, kAll, 0, elements_of(host)}));
    }
    return for_kept([&](const char* state, const layout::Slot& slot, const at::Tensor& one) {
      const at::Tensor host = one.cpu();
      return emit({state, slot.name, 0, elements_of(host)});
    });
  }

  void add_extents(std::vector<checkpoint::Extent>& extents) const override {
    OneBit::add_extents(extents);
    if (padding_.defined() && padding_.numel() > 0)
      extents.push_back({kPadding, kAll, padding_.numel()});
    for (const size_t f : trained_)
      for (const auto& slot : target_.flats[f]->layout().slots())
        for (const char* state : {kFrozen, kFactor, kScaling})
          if (state != kScaling || begun()) extents.push_back({state, slot.name, 1});
  }

  Status restore(checkpoint::SavedRun& saved) override {
    padding_.reset();
    DSJ_TRY_STATUS(OneBit::restore(saved));
    if (errors_.some()) {
      allocate_padding();
      if (padding_.numel() > 0) DSJ_TRY_STATUS(read(saved, kPadding, kAll, padding_));
    }
    const auto& some = target_.flats[trained_.front()]->layout().slots().front();
    const bool begun = saved.elements(kScaling, some.name).has_value();
    memory::MemoryScope scope(memory::Class::Optimizer);
    for (const size_t f : trained_) {
      kept_[f].frozen.zero_();
      kept_[f].factor.fill_(1);
      kept_[f].scaling = begun ? at::ones_like(kept_[f].factor) : at::Tensor();
    }
    if (checkpoint::never_updated(saved) && !saved.elements(kFrozen, some.name)) return {};
    return for_kept([&](const char* state, const layout::Slot& slot, const at::Tensor& one) {
      return read(saved, state, slot.name, one);
    });
  }

 private:
  void warm_up(const optim::OneBitUpdate& update) override {
    const auto coefficients = lamb_step(target_, update.whole());
    const double beta = update.lamb->coeff_beta;
    for (size_t i = 0; i < trained_.size(); ++i) {
      const at::Tensor& c = coefficients[i];
      Kept& kept = kept_[trained_[i]];
      const at::Tensor mean = kept.frozen.to(at::kDouble).mul_(beta).add_(c, 1 - beta);
      kept.frozen.copy_(at::where(c.eq(1), kept.frozen.to(at::kDouble), mean));
      kept.scaling.reset();
    }
  }

  void compressed(const optim::OneBitUpdate& update) override {
    if (!begun()) begin();
    std::optional<comm::SignMeans> means;
    if (!alone()) {
      add_momenta(update);
      memory::MemoryScope scope(memory::Class::Buckets);
      means = errors_.mean();
      errors_.read_padding(*means, 0, padding_);
    }
    const auto seen = take_momenta(update, means);
    if (means) sent_ = std::move(*means);
    const optim::Update whole = update.whole();
    for (size_t i = 0; i < trained_.size(); ++i)
      lamb_apply(*target_.flats[trained_[i]], whole,
                 coefficients(update, kept_[trained_[i]], seen[i]), false);
  }

  bool begun() const { return kept_[trained_.front()].scaling.defined(); }

  static Status read(checkpoint::SavedRun& saved, const char* state, const std::string& name,
                     const at::Tensor& to) {
    const at::Tensor host = at::empty({to.numel()}, at::kFloat);
    DSJ_TRY_STATUS(saved.read(state, name, 0, elements_of(host)));
    to.copy_(host);
    return {};
  }

  /// Calls f(state, slot, tensor [1]) for each parameter's state. Stops at the first error.
  template <typename F>
  Status for_kept(F f) {
    for (const size_t flat : trained_) {
      const Kept& kept = kept_[flat];
      const auto& slots = target_.flats[flat]->layout().slots();
      for (size_t s = 0; s < slots.size(); ++s) {
        const auto at = static_cast<int64_t>(s);
        DSJ_TRY_STATUS(f(kFrozen, slots[s], kept.frozen.narrow(0, at, 1)));
        DSJ_TRY_STATUS(f(kFactor, slots[s], kept.factor.narrow(0, at, 1)));
        if (begun()) DSJ_TRY_STATUS(f(kScaling, slots[s], kept.scaling.narrow(0, at, 1)));
      }
    }
    return {};
  }

  void allocate_padding() {
    memory::MemoryScope scope(memory::Class::Optimizer);
    padding_ = at::zeros({errors_.padding(0)}, at::TensorOptions(target_.device).dtype(at::kFloat));
  }

  at::Tensor zeros(size_t flat, int64_t columns) const {
    const auto slots = static_cast<int64_t>(target_.flats[flat]->layout().slots().size());
    return at::zeros({slots, columns}, at::TensorOptions(target_.device).dtype(at::kDouble));
  }

  /// Over the shards of all ranks. Collective.
  void reduce(const std::vector<at::Tensor>& of_flats, comm::Op op) {
    if (!target_.sharded) return;
    std::vector<at::Tensor> parts;
    for (const at::Tensor& one : of_flats) parts.push_back(one.view(-1));
    const at::Tensor all = at::cat(parts);
    target_.collectives.all_reduce(all, op, {comm::Traffic::Control, "lamb norms"})->wait();
    int64_t at = 0;
    for (const at::Tensor& part : parts) {
      part.copy_(all.narrow(0, at, part.numel()));
      at += part.numel();
    }
  }

  /// Runs at the first compressed step. Scales each momentum so that all have one magnitude on the
  /// wire, and starts the fresh variance at the frozen one.
  void begin() {
    std::vector<at::Tensor> squares;
    int64_t count = 0;
    for (const size_t f : trained_) {
      const at::Tensor& own = squares.emplace_back(zeros(f, 1));
      count += own.size(0);
      target_.flats[f]->for_owned(false, [&](int slot, int64_t, const UpdateSpan& span) {
        span.states[2].copy_(span.states[1]);
        add_sum_of_squares(span.states[0], own.select(0, slot).select(0, 0));
      });
    }
    reduce(squares, comm::Op::Sum);
    at::Tensor sum = at::zeros({}, squares.front().options());
    for (size_t i = 0; i < trained_.size(); ++i) {
      std::vector<double> numels;
      for (const auto& slot : target_.flats[trained_[i]]->layout().slots())
        numels.push_back(static_cast<double>(slot.numel));
      squares[i] =
          squares[i].view(-1).div(at::tensor(numels, at::kDouble).to(target_.device)).sqrt_();
      sum.add_(squares[i].sum());
    }
    sum.div_(static_cast<double>(count));
    memory::MemoryScope scope(memory::Class::Optimizer);
    for (size_t i = 0; i < trained_.size(); ++i) {
      // DeepSpeed divides by 0 where a momentum is 0.
      Kept& kept = kept_[trained_[i]];
      kept.scaling = at::empty_like(kept.factor);
      kept.scaling.copy_(at::where(squares[i].eq(0), at::ones_like(squares[i]), sum / squares[i]));
    }
  }

  at::Tensor scaling(size_t flat, size_t slot) const {
    return kept_[flat].scaling.select(0, static_cast<int64_t>(slot));
  }

  /// Adds each parameter's scaled momentum to the worker errors. As in DeepSpeed, the padding is a
  /// part of the vector: it keeps its received value.
  void add_momenta(const optim::OneBitUpdate& update) {
    memory::MemoryScope scope(memory::Class::Buckets);
    if (!padding_.defined()) allocate_padding();
    errors_.worker_padding(0).add_(padding_);
    contribute([&](size_t f, size_t s, int64_t first, const at::Tensor& g) {
      const at::Tensor m = last_momentum(f, s, first, g.numel());
      if (sent_) m.div_(scaling(f, s));
      follow(m, g, update);
      return m.mul_(scaling(f, s));
    });
  }

  /// Measurements of a step: [slots, 2] sums of squares of m/d and of the whole update, and [slots,
  /// 1] the largest ratio of the frozen denominator d to the fresh one.
  struct Seen {
    at::Tensor squares, ratio;
  };

  /// Writes the new momenta and fresh variances. `means`: nullopt with one rank. Collective.
  std::vector<Seen> take_momenta(const optim::OneBitUpdate& update,
                                 const std::optional<comm::SignMeans>& means) {
    std::vector<at::Tensor> squares, ratios;
    for (const size_t f : trained_) {
      const at::Tensor square = squares.emplace_back(zeros(f, 2));
      const at::Tensor ratio = ratios.emplace_back(zeros(f, 1));
      memory::MemoryScope scope(memory::Class::Buckets);
      target_.flats[f]->for_owned(false, [&](int slot, int64_t first, const UpdateSpan& span) {
        const at::Tensor scale = scaling(f, static_cast<size_t>(slot));
        at::Tensor m;
        if (means) {
          m = at::empty_like(span.states[0]);
          errors_.read(*means, f, static_cast<size_t>(slot), first, m);
        } else {
          m = span.states[0].clone();
          follow(m, span.grad.to(at::kFloat), update);
          m.mul_(scale);
        }
        m.div_(scale);
        see(update, span, m, square.select(0, slot), ratio.select(0, slot));
      });
    }
    reduce(squares, comm::Op::Sum);
    reduce(ratios, comm::Op::Max);
    std::vector<Seen> seen;
    for (size_t i = 0; i < squares.size(); ++i) seen.push_back({squares[i], ratios[i].view(-1)});
    return seen;
  }

  /// Updates one run's states from the new momentum m [n], which it overwrites. Adds to `squares`
  /// [2] and raises `ratio` [1].
  static void see(const optim::OneBitUpdate& update, const UpdateSpan& span, const at::Tensor& m,
                  const at::Tensor& squares, const at::Tensor& ratio) {
    const optim::AdamRule& rule = update.rule;
    const at::Tensor &kept = span.states[0], &frozen = span.states[1], &fresh = span.states[2];
    // The gradient that leads from the old momentum to the new one.
    at::Tensor g = kept.mul_(rule.beta1);
    at::sub_out(g, m, g).div_(1 - rule.beta1);
    fresh.mul_(rule.beta2).add_(g.mul_(g).mul_(1 - rule.beta2));
    kept.copy_(m);
    const at::Tensor denominator = frozen.sqrt().add_(rule.eps);
    at::Tensor real = fresh.sqrt().add_(rule.eps);
    at::div_out(real, denominator, real);
    ratio.copy_(at::maximum(ratio, real.amax().to(at::kDouble)));
    m.div_(denominator);
    add_sum_of_squares(m, squares.select(0, 0));
    if (rule.weight_decay != 0) m.add_(real.copy_(span.p).mul_(rule.weight_decay));
    add_sum_of_squares(m, squares.select(0, 1));
  }

  /// Returns [slots] double. Stores the factors in `kept`.
  static at::Tensor coefficients(const optim::OneBitUpdate& update, Kept& kept, const Seen& seen) {
    const optim::LambFreeze& limits = *update.lamb;
    at::Tensor factor = seen.ratio;
    if (update.rule.weight_decay != 0) {
      const at::Tensor part = seen.squares.select(1, 0).div(seen.squares.select(1, 1)).sqrt();
      // 0/0 (no movement) counts as 1, as in DeepSpeed.
      const at::Tensor q = at::where(part.lt(1), part, at::ones_like(part));
      factor = factor * q + (1 - q);
    }
    const at::Tensor last = kept.factor.to(at::kDouble);
    factor = factor.clamp_max(limits.factor_max).clamp_min(limits.factor_min);
    factor = at::minimum(factor, last * (1 + limits.factor_threshold));
    factor = at::maximum(factor, last * (1 - limits.factor_threshold));
    kept.factor.copy_(factor);
    return kept.frozen.to(at::kDouble) * kept.factor.to(at::kDouble);
  }

  std::vector<size_t> trained_;  ///< the flats that are not frozen
  std::vector<Kept> kept_;       ///< [flat]
  /// The vector's padding as received; undefined before the first compressed step.
  at::Tensor padding_;
};

}  // namespace

std::unique_ptr<UpdateMethod> make_one_bit_lamb(const UpdateTarget& target) {
  return std::make_unique<OneBitLamb>(target);
}

}  // namespace dsj::zero
