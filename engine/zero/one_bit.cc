#include "engine/zero/one_bit.h"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "engine/memory/counting_allocator.h"
#include "engine/zero/error_feedback.h"
#include "engine/zero/tiles.h"
#include "engine/zero/update.h"

namespace dsj::zero {
namespace {

class OneBitAdam final : public OneBit {
 public:
  explicit OneBitAdam(OneBitParts parts)
      : flats_(std::move(parts.flats)),
        device_(parts.device),
        errors_(std::move(parts.plan), parts.collectives, parts.device) {}

  void step(const optim::OneBitUpdate& update) override {
    memory::MemoryScope scope(memory::Class::Buckets);
    add_momenta(update);
    momentum_ = errors_.mean();
    const optim::Update apply = update.frozen_moments();
    for (size_t f = 0; f < flats_.size(); ++f) {
      Flat& flat = *flats_[f];
      if (flat.frozen()) continue;
      flat.for_owned(true, [&](int slot, int64_t first, const UpdateSpan& span) {
        for_tiles(device_, span.p.numel(), [&](int64_t begin, int64_t count) {
          const SpanPart part(span, begin, count);
          errors_.read(*momentum_, f, static_cast<size_t>(slot), first + begin,
                       part.span().states[kMomentum - 1]);
          update_span(apply, part.span());
        });
      });
      flat.start_gather();
    }
  }

  Status for_pieces(const checkpoint::EmitPiece& emit) override { return errors_.for_pieces(emit); }
  void add_extents(std::vector<checkpoint::Extent>& extents) const override {
    errors_.add_extents(extents);
  }
  Status restore(checkpoint::SavedRun& saved) override {
    momentum_.reset();
    return errors_.restore(saved);
  }
  bool dropped() const override { return errors_.dropped(); }

 private:
  /// Adds beta1 m + (1-beta1) g of every parameter to the worker errors.
  void add_momenta(const optim::OneBitUpdate& update) {
    for (size_t f = 0; f < flats_.size(); ++f) {
      Flat& flat = *flats_[f];
      if (flat.frozen()) continue;
      at::Tensor whole;
      if (!momentum_) whole = flat.gather_state(kMomentum);
      const at::Tensor gradient = flat.local_gradient();
      const auto& slots = flat.layout().slots();
      for (size_t s = 0; s < slots.size(); ++s) {
        for_tiles(device_, slots[s].numel, [&](int64_t first, int64_t count) {
          at::Tensor m;
          if (momentum_) {
            m = at::empty({count}, at::TensorOptions(device_).dtype(at::kFloat));
            errors_.read(*momentum_, f, s, first, m);
          } else {
            m = whole.narrow(0, slots[s].offset + first, count);
          }
          const at::Tensor g = gradient.narrow(0, slots[s].offset + first, count).to(at::kFloat);
          // Each operation rounds by itself, so that every CPU has the same bits.
          m.mul_(update.rule.beta1).add_(g.mul(update.grad_scale).mul_(1 - update.rule.beta1));
          errors_.worker(f, s, first, count).add_(m);
        });
      }
    }
  }

  const std::vector<Flat*> flats_;
  const at::Device device_;
  ErrorFeedback errors_;
  std::optional<comm::SignMeans> momentum_;  ///< the last step's; unset: in the flats' states
};

}  // namespace

void OneBit::warmed_up(const optim::OneBitUpdate&, const std::vector<at::Tensor>&) {}

std::unique_ptr<OneBit> make_one_bit_adam(OneBitParts parts) {
  return std::make_unique<OneBitAdam>(std::move(parts));
}

}  // namespace dsj::zero
