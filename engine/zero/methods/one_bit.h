// The shared base of the 1-bit optimizers' methods (optim/one_bit.h). Before the freeze a step
// averages gradients and applies a plain update. After it, gradients stay local and ranks exchange
// compressed momenta. Not thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "common/check.h"
#include "engine/optim/one_bit.h"
#include "engine/zero/methods/error_feedback.h"
#include "engine/zero/methods/tiles.h"
#include "engine/zero/methods/update_method.h"

namespace dsj::zero {

class OneBit : public UpdateMethod {
 public:
  explicit OneBit(const UpdateTarget& target);

  bool keeps_gradients_local(int64_t updates) const override;
  void step(const StepNumbers& numbers) override;
  Status for_pieces(const checkpoint::EmitPiece& emit) override { return errors_.for_pieces(emit); }
  void add_extents(std::vector<checkpoint::Extent>& extents) const override {
    errors_.add_extents(extents);
  }
  /// Sets the errors to zero if the checkpoint has another number of ranks or other vectors.
  Status restore(checkpoint::SavedRun& saved) override;
  std::string dropped() const override;

 protected:
  /// A step before the freeze.
  virtual void warm_up(const optim::OneBitUpdate& update) { apply(update.whole()); }
  /// A step with local gradients; with one rank, any step after the freeze.
  virtual void compressed(const optim::OneBitUpdate& update) = 0;

  bool alone() const { return target_.collectives.world() == 1; }
  /// An elementwise update of all flats.
  void apply(const optim::Update& update);
  /// Adds value(flat, slot, first, g) [n] to the worker errors, in tiles over all elements. g [n]
  /// fp32 is this rank's own gradient of the elements from `first` on; it may alias the gradient.
  template <typename F>
  void contribute(F value) {
    for (size_t f = 0; f < target_.flats.size(); ++f) {
      if (target_.flats[f]->frozen()) continue;
      DSJ_CHECK(target_.flats[f]->gradient().state() == GradientSum::State::Own);
      const at::Tensor gradient = target_.flats[f]->gradient().value();
      const auto& slots = target_.flats[f]->layout().slots();
      for (size_t s = 0; s < slots.size(); ++s) {
        for_tiles(target_.device, slots[s].numel, [&](int64_t first, int64_t count) {
          const at::Tensor g = gradient.narrow(0, slots[s].offset + first, count).to(at::kFloat);
          errors_.worker(f, s, first, count).add_(value(f, s, first, g));
        });
      }
      gathered_.reset();
    }
  }
  /// For contribute(): a copy of the last step's momentum, n elements of a parameter, as it was
  /// received. If sent_ is unset, it comes from the flat's states, gathered by a flat's first call.
  at::Tensor last_momentum(size_t flat, size_t slot, int64_t first, int64_t n);
  /// m = beta1 m + (1-beta1) g. Each operation rounds by itself, so that every CPU has the same
  /// bits.
  static void follow(const at::Tensor& m, const at::Tensor& g, const optim::OneBitUpdate& update);

  ErrorFeedback errors_;
  std::optional<comm::SignMeans> sent_;  ///< the last step's means
  bool dropped_ = false;                 ///< by the last restore()

 private:
  at::Tensor gathered_;  ///< [numel]: momentum of contribute()'s current flat
};

}  // namespace dsj::zero
