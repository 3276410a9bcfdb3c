#include "engine/zero/piece_sums.h"

#include <ATen/ATen.h>

#include "engine/memory/counting_allocator.h"
#include "job/layout/row_pieces.h"

namespace dsj::zero {
GradView PieceSums::of(int parameter, int count, const GradView& whole) {
  if (!whole.tensor.defined() || whole.tensor.scalar_type() == at::kFloat) return whole;
  auto [found, first] = sums_.try_emplace({parameter, count});
  Sum& sum = found->second;
  if (first) {
    const memory::MemoryScope scratch(memory::Class::Buckets);
    sum = {whole, at::empty_like(whole.tensor), at::zeros_like(whole.tensor)};
  }
  const bool again = std::exchange(sum.written, true);
  return {sum.piece, again};
}

void PieceSums::add() {
  const memory::MemoryScope scratch(memory::Class::Buckets);
  for (auto& [parameter, sum] : sums_) {
    if (!std::exchange(sum.written, false)) continue;
    const at::Tensor whole = sum.whole.tensor.view({-1}), piece = sum.piece.view({-1}),
                     lost = sum.lost.view({-1});
    for (const auto& tile : layout::row_pieces(whole.numel(), layout::sum_tile(!whole.is_cpu()))) {
      const at::Tensor out = whole.narrow(0, tile.first, tile.count);
      const at::Tensor rest = lost.narrow(0, tile.first, tile.count);
      at::Tensor exact = piece.narrow(0, tile.first, tile.count).to(at::kFloat).add_(rest);
      if (sum.whole.accumulate) exact.add_(out);
      out.copy_(exact);
      rest.copy_(exact.sub_(out));
    }
    sum.whole.accumulate = true;
  }
}

}  // namespace dsj::zero
