#include "engine/models/adapters.h"

#include <ATen/ATen.h>

#include "engine/models/gemm.h"
#include "engine/models/ops.h"
#include "engine/models/unit.h"

namespace dsj::models {
namespace {

/// Dropout sites of adapters start here; all other sites of a unit are smaller.
constexpr int64_t kFirstSite = 1 << 16;

/// An adapter of a projection, and the output columns that it adds to.
struct Part {
  const layout::Adapter* adapter;
  int64_t first, size;
};

std::vector<Part> parts_of(const zero::UnitParameters& p, const Projection& projection) {
  std::vector<Part> parts;
  int64_t first = 0;
  for (size_t i = 0; i < projection.sizes.size(); first += projection.sizes[i++]) {
    if (const auto* adapter = p.adapter(projection.weight + static_cast<int>(i)))
      parts.push_back({adapter, first, projection.sizes[i]});
  }
  return parts;
}

ops::Dropout dropout_of(const zero::UnitParameters& p, const Part& part,
                        std::optional<uint64_t> key) {
  if (!key) return {};
  return {p.lora().dropout, dropout_key(*key, kFirstSite + part.adapter->weight)};
}

at::Tensor dropped(const at::Tensor& x, const ops::Dropout& dropout) {
  if (dropout.p == 0) return x;
  at::Tensor out = x.clone();
  ops::dropout(out, dropout);
  return out;
}

/// out += s z b^T.
void add_scaled(at::Tensor out, const at::Tensor& z, const at::Tensor& b, double s) {
  if (out.scalar_type() == at::kFloat) {
    out.addmm_(z, b.t(), 1, s);
    return;
  }
  at::Tensor update = at::empty(out.sizes(), out.options());
  gemm::linear(update, z, b);
  out.add_(update.mul_(s));
}

/// z [N, count r] of all adapters in one product. Undefined unless their A are adjacent and have
/// the same input x.
at::Tensor down_together(const zero::UnitParameters& p, const std::vector<Part>& parts,
                         const at::Tensor& x) {
  const int count = static_cast<int>(parts.size());
  for (int i = 0; i < count; ++i)
    if (parts[i].adapter->a != parts[0].adapter->a + i) return {};
  const at::Tensor a = p.stacked_weight(parts[0].adapter->a, count);
  if (!a.defined()) return {};
  at::Tensor z = at::empty({x.size(0), a.size(0)}, x.options());
  gemm::linear(z, x, a);
  return z;
}

at::Tensor down(const zero::UnitParameters& p, const Part& part, const at::Tensor& x) {
  const at::Tensor a = p.weight(part.adapter->a);
  at::Tensor z = at::empty({x.size(0), a.size(0)}, x.options());
  gemm::linear(z, x, a);
  return z;
}

}  // namespace

bool has_adapters(const zero::UnitParameters& p, const Projection& projection) {
  return !parts_of(p, projection).empty();
}

void adapters_forward(const zero::UnitParameters& p, const Projection& projection,
                      const at::Tensor& x, std::optional<uint64_t> key, at::Tensor out) {
  const auto parts = parts_of(p, projection);
  if (parts.empty()) return;
  const LoraArgs& lora = p.lora();
  at::Tensor together;
  if (!key || lora.dropout == 0) together = down_together(p, parts, x);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const at::Tensor z = together.defined()
                             ? together.narrow(1, static_cast<int64_t>(i) * lora.r, lora.r)
                             : down(p, part, dropped(x, dropout_of(p, part, key)));
    add_scaled(out.narrow(1, part.first, part.size), z, p.weight(part.adapter->b), lora.scaling());
  }
}

void adapters_backward(const zero::UnitParameters& p, const Projection& projection,
                       const at::Tensor& dy, const at::Tensor& x, std::optional<uint64_t> key,
                       at::Tensor dx) {
  for (const Part& part : parts_of(p, projection)) {
    const double s = p.lora().scaling();
    const ops::Dropout dropout = dropout_of(p, part, key);
    const at::Tensor input = dropped(x, dropout);
    const at::Tensor dout = dy.narrow(1, part.first, part.size);
    const at::Tensor z = down(p, part, input).mul_(s);
    const auto b_grad = p.grad(part.adapter->b);
    gemm::grad_weight(b_grad, dout, z);
    at::Tensor dz = at::empty_like(z);
    gemm::grad_input(dz, dout, p.weight(part.adapter->b), false);
    dz.mul_(s);
    const auto a_grad = p.grad(part.adapter->a);
    gemm::grad_weight(a_grad, dz, input);
    if (dropout.p == 0) {
      gemm::grad_input(dx, dz, p.weight(part.adapter->a), true);
      continue;
    }
    at::Tensor dinput = at::empty_like(x);
    gemm::grad_input(dinput, dz, p.weight(part.adapter->a), false);
    ops::dropout(dinput, dropout);
    dx.add_(dinput);
  }
}

}  // namespace dsj::models
