#include "engine/models/ops/dora.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "job/layout/lora.h"

namespace dsj::models::dora {

Lengths lengths_of(const zero::UnitParameters& p, const layout::Adapter& adapter) {
  const at::Tensor w = p.weight(adapter.weight), a = p.weight(adapter.a).to(at::kFloat);
  const int64_t rows = w.size(0), some = std::max<int64_t>(1, layout::kDoraPiece / w.size(1));
  const at::Tensor before = at::empty({rows}, w.options().dtype(at::kFloat));
  for (int64_t first = 0; first < rows; first += some) {
    const int64_t count = std::min(some, rows - first);
    const at::Tensor b = p.weight(adapter.b).narrow(0, first, count).to(at::kFloat);
    const at::Tensor sum =
        at::addmm(w.narrow(0, first, count).to(at::kFloat), b, a, 1, adapter.scaling);
    before.narrow(0, first, count).copy_(at::linalg_vector_norm(sum, 2, {1}));
  }
  return {before, p.weight(adapter.magnitude).to(at::kFloat).div(before)};
}

}  // namespace dsj::models::dora
