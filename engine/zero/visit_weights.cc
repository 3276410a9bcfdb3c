#include "engine/zero/visit_weights.h"

#include <ATen/ATen.h>

namespace dsj::zero {

void visit_weights(const std::vector<Flat*>& flats,
                   const std::function<bool(const layout::Slot&)>& here,
                   const std::function<void(const layout::Slot&, const at::Tensor&)>& visit) {
  for (Flat* flat : flats) {
    const bool gather = flat->sharded_parameters() && !flat->gathered();
    if (gather) flat->start_gather(/*exact=*/true);
    flat->finish_gather();
    const auto& slots = flat->layout().slots();
    for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot)
      if (here(slots[slot])) visit(slots[slot], flat->weight(slot).to(at::kCPU));
    if (gather) flat->release();
  }
}

}  // namespace dsj::zero
