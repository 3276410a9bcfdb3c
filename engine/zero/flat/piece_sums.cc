#include "engine/zero/flat/piece_sums.h"

#include <ATen/ATen.h>

#include "engine/memory/counting_allocator.h"
#include "job/layout/row_pieces.h"

namespace dsj::zero {

void add_rounded_sum(const at::Tensor& out, const at::Tensor& sum, at::ScalarType type) {
  const memory::MemoryScope scratch(memory::Class::Buckets);
  const at::Tensor to = out.view({-1}), from = sum.view({-1});
  for (const auto& tile : layout::row_pieces(from.numel(), layout::sum_tile(!from.is_cpu()))) {
    const at::Tensor part = from.narrow(0, tile.first, tile.count);
    part.copy_(part.to(type));
    if (!sum.is_same(out)) to.narrow(0, tile.first, tile.count).add_(part);
  }
}

GradView PieceSums::of(int parameter, int count, const GradView& whole, at::ScalarType type) {
  if (!whole.tensor.defined()) return whole;
  const bool wide = whole.tensor.scalar_type() == at::kFloat;
  if (wide && type != at::kHalf) return whole;
  auto [found, first] = sums_.try_emplace({parameter, count});
  Sum& sum = found->second;
  if (first) {
    const memory::MemoryScope scratch(memory::Class::Buckets);
    sum.whole = whole;
    sum.piece = wide && !whole.accumulate ? whole.tensor : at::empty_like(whole.tensor);
    if (!wide) sum.lost = at::zeros_like(whole.tensor);
  }
  const bool again = std::exchange(sum.written, true);
  return {sum.piece, again, /*part=*/true};
}

void PieceSums::add() {
  const memory::MemoryScope scratch(memory::Class::Buckets);
  for (auto& [parameter, sum] : sums_) {
    if (!sum.lost.defined() || !std::exchange(sum.written, false)) continue;
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

void PieceSums::finish() {
  for (auto& [parameter, sum] : sums_)
    if (!sum.lost.defined()) add_rounded_sum(sum.whole.tensor, sum.piece, at::kHalf);
}

}  // namespace dsj::zero
