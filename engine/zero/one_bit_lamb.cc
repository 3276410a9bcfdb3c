// OneBitLamb's compressed steps. Formulas: DeepSpeed 0.18.9's OnebitLamb, as
// docs/optimizers.md tells them.
#include <ATen/ATen.h>

#include <cmath>
#include <optional>
#include <utility>

#include "engine/memory/counting_allocator.h"
#include "engine/zero/error_feedback.h"
#include "engine/zero/norm.h"
#include "engine/zero/one_bit.h"
#include "engine/zero/tiles.h"
#include "engine/zero/update.h"

namespace dsj::zero {
namespace {

// By their states in a checkpoint. The first three have one element per parameter.
constexpr char kFrozen[] = "lamb_coeff_freeze", kFactor[] = "last_factor",
               kScaling[] = "scaling_coeff", kPadding[] = "dummy_exp_avg", kAll[] = "all";

/// What is kept of the parameters of a flat: [slots] fp32 each, equal on all ranks.
struct Kept {
  at::Tensor frozen;   ///< mean of the coefficients before the freeze; starts at 0, not corrected
  at::Tensor factor;   ///< of the last compressed step
  at::Tensor scaling;  ///< of the momentum, for the wire; undefined before the first of them
};

class OneBitLamb final : public OneBit {
 public:
  explicit OneBitLamb(OneBitParts parts)
      : collectives_(parts.collectives),
        device_(parts.device),
        sharded_(parts.sharded),
        errors_(std::move(parts.plan), parts.collectives, parts.device) {
    memory::MemoryScope scope(memory::Class::Optimizer);
    for (size_t f = 0; f < parts.flats.size(); ++f) {
      if (parts.flats[f]->frozen()) continue;
      const auto slots = static_cast<int64_t>(parts.flats[f]->layout().slots().size());
      const auto options = at::TensorOptions(device_).dtype(at::kFloat);
      flats_.push_back(
          {f, parts.flats[f], {at::zeros({slots}, options), at::ones({slots}, options), {}}});
    }
  }

  void warmed_up(const optim::OneBitUpdate& update,
                 const std::vector<at::Tensor>& coefficients) override {
    const double beta = update.lamb->coeff_beta;
    for (size_t i = 0; i < flats_.size(); ++i) {
      const at::Tensor& c = coefficients[i];
      Kept& kept = flats_[i].kept;
      const at::Tensor mean = kept.frozen.to(at::kDouble).mul_(beta).add_(c, 1 - beta);
      kept.frozen.copy_(at::where(c.eq(1), kept.frozen.to(at::kDouble), mean));
      kept.scaling.reset();
    }
  }

  void step(const optim::OneBitUpdate& update) override {
    if (!begun()) begin();
    std::optional<comm::SignMeans> means;
    if (collectives_.world() > 1) {
      add_momenta(update);
      memory::MemoryScope scope(memory::Class::Buckets);
      means = errors_.mean();
      errors_.read_padding(*means, 0, padding_);
    }
    const auto sums = take_momenta(update, means);
    if (means) momentum_ = std::move(*means);
    const optim::Update apply = update.whole();
    for (size_t i = 0; i < flats_.size(); ++i) {
      flats_[i].flat->step(apply, coefficients(update, flats_[i].kept, sums[i]));
      flats_[i].flat->start_gather();
    }
  }

  Status for_pieces(const checkpoint::EmitPiece& emit) override {
    DSJ_TRY_STATUS(errors_.for_pieces(emit));
    if (collectives_.rank() != 0) return {};
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
    errors_.add_extents(extents);
    if (padding_.defined() && padding_.numel() > 0)
      extents.push_back({kPadding, kAll, padding_.numel()});
    for (const Trained& one : flats_)
      for (const auto& slot : one.flat->layout().slots())
        for (const char* state : {kFrozen, kFactor, kScaling})
          if (state != kScaling || begun()) extents.push_back({state, slot.name, 1});
  }

  Status restore(checkpoint::SavedRun& saved) override {
    momentum_.reset();
    padding_.reset();
    DSJ_TRY_STATUS(errors_.restore(saved));
    if (errors_.some()) {
      allocate_padding();
      if (padding_.numel() > 0) DSJ_TRY_STATUS(read(saved, kPadding, kAll, padding_));
    }
    const auto& some = flats_.front().flat->layout().slots().front();
    const bool begun = saved.elements(kScaling, some.name).has_value();
    memory::MemoryScope scope(memory::Class::Optimizer);
    for (Trained& one : flats_) {
      one.kept.frozen.zero_();
      one.kept.factor.fill_(1);
      one.kept.scaling = begun ? at::ones_like(one.kept.factor) : at::Tensor();
    }
    if (checkpoint::never_updated(saved) && !saved.elements(kFrozen, some.name)) return {};
    return for_kept([&](const char* state, const layout::Slot& slot, const at::Tensor& one) {
      return read(saved, state, slot.name, one);
    });
  }

  bool dropped() const override { return errors_.dropped(); }

 private:
  struct Trained {
    size_t index;  ///< among the plan's flats
    Flat* flat;
    Kept kept;
  };

  bool begun() const { return flats_.front().kept.scaling.defined(); }

  static Status read(checkpoint::SavedRun& saved, const char* state, const std::string& name,
                     const at::Tensor& to) {
    const at::Tensor host = at::empty({to.numel()}, at::kFloat);
    DSJ_TRY_STATUS(saved.read(state, name, 0, elements_of(host)));
    to.copy_(host);
    return {};
  }

  /// Calls f(state, slot, tensor [1]) for what is kept of each parameter. Stops at the first error.
  template <typename F>
  Status for_kept(F f) {
    for (const Trained& one : flats_) {
      const auto& slots = one.flat->layout().slots();
      for (size_t s = 0; s < slots.size(); ++s) {
        const auto at = static_cast<int64_t>(s);
        DSJ_TRY_STATUS(f(kFrozen, slots[s], one.kept.frozen.narrow(0, at, 1)));
        DSJ_TRY_STATUS(f(kFactor, slots[s], one.kept.factor.narrow(0, at, 1)));
        if (begun()) DSJ_TRY_STATUS(f(kScaling, slots[s], one.kept.scaling.narrow(0, at, 1)));
      }
    }
    return {};
  }

  void allocate_padding() {
    memory::MemoryScope scope(memory::Class::Optimizer);
    padding_ = at::zeros({errors_.padding(0)}, at::TensorOptions(device_).dtype(at::kFloat));
  }

  at::Tensor zeros(size_t flat, int64_t columns) const {
    const auto slots = static_cast<int64_t>(flats_[flat].flat->layout().slots().size());
    return at::zeros({slots, columns}, at::TensorOptions(device_).dtype(at::kDouble));
  }

  /// Over the shards of all ranks. Collective.
  void reduce(const std::vector<at::Tensor>& of_flats, comm::Op op) {
    if (!sharded_) return;
    std::vector<at::Tensor> parts;
    for (const at::Tensor& one : of_flats) parts.push_back(one.view(-1));
    const at::Tensor all = at::cat(parts);
    collectives_.all_reduce(all, op, {comm::Traffic::Control, "lamb norms"})->wait();
    int64_t at = 0;
    for (const at::Tensor& part : parts) {
      part.copy_(all.narrow(0, at, part.numel()));
      at += part.numel();
    }
  }

  /// The first compressed step: each momentum gets a scale that makes all of one size on the wire, and
  /// the fresh variance starts as the frozen one.
  void begin() {
    std::vector<at::Tensor> squares;
    int64_t count = 0;
    for (size_t i = 0; i < flats_.size(); ++i) {
      squares.push_back(zeros(i, 1));
      count += squares.back().size(0);
      flats_[i].flat->for_owned(false, [&](int slot, int64_t, const UpdateSpan& span) {
        span.states[2].copy_(span.states[1]);
        add_sum_of_squares(span.states[0], squares[i].select(0, slot).select(0, 0));
      });
    }
    reduce(squares, comm::Op::Sum);
    at::Tensor sum = at::zeros({}, squares.front().options());
    for (size_t i = 0; i < flats_.size(); ++i) {
      std::vector<double> numels;
      for (const auto& slot : flats_[i].flat->layout().slots())
        numels.push_back(static_cast<double>(slot.numel));
      squares[i] = squares[i].view(-1).div(at::tensor(numels, at::kDouble).to(device_)).sqrt_();
      sum.add_(squares[i].sum());
    }
    sum.div_(static_cast<double>(count));
    memory::MemoryScope scope(memory::Class::Optimizer);
    for (size_t i = 0; i < flats_.size(); ++i) {
      // DeepSpeed divides by 0 where a momentum is 0.
      Kept& kept = flats_[i].kept;
      kept.scaling = at::empty_like(kept.factor);
      kept.scaling.copy_(at::where(squares[i].eq(0), at::ones_like(squares[i]), sum / squares[i]));
    }
  }

  /// beta1 m + (1-beta1) g, in place. Each operation rounds by itself, so that every CPU has the same
  /// bits.
  static void follow(const at::Tensor& m, const at::Tensor& grad, const at::Tensor& scaling,
                     const optim::OneBitUpdate& update) {
    const at::Tensor g = grad.to(at::kFloat).mul(update.grad_scale).mul_(1 - update.rule.beta1);
    m.mul_(update.rule.beta1).add_(g).mul_(scaling);
  }

  /// Adds each parameter's scaled momentum to the worker errors. In DeepSpeed the padding is a part of
  /// the vector: it stays as it came over the wire.
  void add_momenta(const optim::OneBitUpdate& update) {
    memory::MemoryScope scope(memory::Class::Buckets);
    if (!padding_.defined()) allocate_padding();
    errors_.worker_padding(0).add_(padding_);
    for (const Trained& one : flats_) {
      at::Tensor whole;
      if (!momentum_) whole = one.flat->gather_state(kMomentum);
      const at::Tensor gradient = one.flat->local_gradient();
      const auto& slots = one.flat->layout().slots();
      for (size_t s = 0; s < slots.size(); ++s) {
        const at::Tensor scaling = one.kept.scaling.select(0, static_cast<int64_t>(s));
        for_tiles(device_, slots[s].numel, [&](int64_t first, int64_t count) {
          at::Tensor m;
          if (momentum_) {
            m = at::empty({count}, at::TensorOptions(device_).dtype(at::kFloat));
            errors_.read(*momentum_, one.index, s, first, m);
            m.div_(scaling);
          } else {
            m = whole.narrow(0, slots[s].offset + first, count);
          }
          follow(m, gradient.narrow(0, slots[s].offset + first, count), scaling, update);
          errors_.worker(one.index, s, first, count).add_(m);
        });
      }
    }
  }

  /// What a step sees of its parameters: [slots, 2] sums of squares of m/d and of the whole update,
  /// and [slots, 1] the largest part by which the frozen denominator d is above the fresh one.
  struct Seen {
    at::Tensor squares, ratio;
  };

  /// Writes the new momenta and the fresh variances. `means`: nullopt with one rank. Collective.
  std::vector<Seen> take_momenta(const optim::OneBitUpdate& update,
                                 const std::optional<comm::SignMeans>& means) {
    std::vector<at::Tensor> squares, ratios;
    for (size_t i = 0; i < flats_.size(); ++i) {
      squares.push_back(zeros(i, 2));
      ratios.push_back(zeros(i, 1));
      const Trained& one = flats_[i];
      memory::MemoryScope scope(memory::Class::Buckets);
      one.flat->for_owned(false, [&](int slot, int64_t first, const UpdateSpan& span) {
        const at::Tensor scaling = one.kept.scaling.select(0, slot);
        at::Tensor m;
        if (means) {
          m = at::empty_like(span.states[0]);
          errors_.read(*means, one.index, static_cast<size_t>(slot), first, m);
        } else {
          m = span.states[0].clone();
          follow(m, span.grad, scaling, update);
        }
        m.div_(scaling);
        see(update, span, m, squares[i].select(0, slot), ratios[i].select(0, slot));
      });
    }
    reduce(squares, comm::Op::Sum);
    reduce(ratios, comm::Op::Max);
    std::vector<Seen> seen;
    for (size_t i = 0; i < flats_.size(); ++i) seen.push_back({squares[i], ratios[i].view(-1)});
    return seen;
  }

  /// One run: its states from the new momentum m [n], which is used up. Adds to `squares` [2], raises
  /// `ratio` [1].
  static void see(const optim::OneBitUpdate& update, const UpdateSpan& span, const at::Tensor& m,
                  const at::Tensor& squares, const at::Tensor& ratio) {
    const optim::AdamRule& rule = update.rule;
    const at::Tensor &kept = span.states[0], &frozen = span.states[1], &fresh = span.states[2];
    // The gradient that would have led from the old momentum to the new one.
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

  /// [slots] double. Remembers the factors.
  static at::Tensor coefficients(const optim::OneBitUpdate& update, Kept& kept, const Seen& seen) {
    const optim::LambFreeze& limits = *update.lamb;
    at::Tensor factor = seen.ratio;
    if (update.rule.weight_decay != 0) {
      const at::Tensor part = seen.squares.select(1, 0).div(seen.squares.select(1, 1)).sqrt();
      // 0/0, where nothing moves, counts as 1, as there.
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

  comm::Collectives& collectives_;
  const at::Device device_;
  const bool sharded_;
  ErrorFeedback errors_;
  std::vector<Trained> flats_;
  at::Tensor
      padding_;  ///< the vector's, as it came over the wire; undefined: no compressed step yet
  std::optional<comm::SignMeans> momentum_;  ///< the last step's; unset: in the flats' states
};

}  // namespace

std::unique_ptr<OneBit> make_one_bit_lamb(OneBitParts parts) {
  return std::make_unique<OneBitLamb>(std::move(parts));
}

}  // namespace dsj::zero
