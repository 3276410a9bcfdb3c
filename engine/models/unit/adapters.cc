#include "engine/models/unit/adapters.h"

#include <ATen/ATen.h>

#include "engine/models/ops/gemm.h"
#include "engine/models/ops/ops.h"
#include "engine/models/unit/unit.h"

namespace dsj::models {
namespace {

/// Dropout sites of adapters start here; all other sites of a unit are smaller.
constexpr int64_t kFirstSite = 1 << 16;

/// An adapter of a projection, and the output columns that it adds to.
struct Part {
  const layout::Adapter* adapter;
  int64_t first, size;
  int index;  ///< of its weight in the projection
};

std::vector<Part> parts_of(const zero::UnitParameters& p, const Projection& projection) {
  std::vector<Part> parts;
  int64_t first = 0;
  for (size_t i = 0; i < projection.sizes.size(); first += projection.sizes[i++]) {
    const auto* adapter = p.adapter(projection.weight + static_cast<int>(i));
    if (adapter && adapter->experts == 0)  // else expert_adapter.h adds it
      parts.push_back({adapter, first, projection.sizes[i], static_cast<int>(i)});
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

at::Tensor low_rank(const at::Tensor& z, const at::Tensor& b, double s) {
  at::Tensor update = at::empty({z.size(0), b.size(0)}, z.options());
  gemm::linear(update, z, b);
  return update.mul_(s);
}

/// out += s z b^T. On an accelerator the product adds to `out` itself, and rounds once.
void add_scaled(at::Tensor out, const at::Tensor& z, const at::Tensor& b, double s) {
  if (out.scalar_type() == at::kFloat || !out.is_cpu()) {
    out.addmm_(z, gemm::as_factor(b, z.scalar_type()).t(), 1, s);
    return;
  }
  out.add_(low_rank(z, b, s));
}

/// x w^T of the frozen weight alone.
at::Tensor base_product(const zero::UnitParameters& p, const Part& part, const at::Tensor& x) {
  at::Tensor out = at::empty({x.size(0), part.size}, x.options());
  gemm::linear(out, x, p.weight(part.adapter->weight));
  return out;
}

/// DoRA: out = bias + f (x w^T + s z b^T), where out is bias + x w^T and f [width] scales columns.
/// With dropout the adapter reads another x than the base: out += (f - 1) x' w^T + f s z b^T.
void forward_scaled(const zero::UnitParameters& p, const Projection& projection, const Part& part,
                    const at::Tensor& input, const at::Tensor& z, bool dropped, at::Tensor out) {
  const at::Tensor b = p.weight(part.adapter->b);
  const at::Tensor factor = dora::lengths_of(p, *part.adapter).factor.to(out.scalar_type());
  const double s = part.adapter->scaling;
  if (dropped) {
    const at::Tensor base = base_product(p, part, input);
    out.add_(low_rank(z, b, s).add_(base).mul_(factor)).sub_(base);
    return;
  }
  const at::Tensor bias = projection.bias < 0
                              ? at::Tensor()
                              : p.weight(projection.bias + part.index).to(out.scalar_type());
  if (bias.defined()) out.sub_(bias);
  add_scaled(out, z, b, s);
  out.mul_(factor);
  if (bias.defined()) out.add_(bias);
}

/// A of all adapters as one matrix [sum of ranks, i]; undefined unless they are adjacent.
at::Tensor stacked_a(const zero::UnitParameters& p, const std::vector<Part>& parts) {
  const int count = static_cast<int>(parts.size());
  for (int i = 0; i < count; ++i)
    if (parts[i].adapter->a != parts[0].adapter->a + i) return {};
  return p.stacked_weight(parts[0].adapter->a, count);
}

/// z [N, sum of ranks] of all adapters in one product. Undefined unless their A are adjacent.
at::Tensor down_together(const zero::UnitParameters& p, const std::vector<Part>& parts,
                         const at::Tensor& x) {
  const at::Tensor a = stacked_a(p, parts);
  if (!a.defined()) return {};
  at::Tensor z = at::empty({x.size(0), a.size(0)}, x.options());
  gemm::linear(z, x, a);
  return z;
}

/// dm_o = sum over tokens of dy_o y_o / m_o, with y the scaled column without its bias. sz: s z.
void magnitude_backward(const zero::UnitParameters& p, const Part& part, const at::Tensor& dout,
                        const at::Tensor& input, const at::Tensor& sz,
                        const dora::Lengths& lengths) {
  at::Tensor y = base_product(p, part, input);
  add_scaled(y, sz, p.weight(part.adapter->b), 1);
  y.div_(lengths.before.to(y.scalar_type())).mul_(dout);
  gemm::grad_bias(p.grad(part.adapter->magnitude), y);
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
  int64_t at = 0;
  for (const Part& part : parts) {
    const layout::Adapter& adapter = *part.adapter;
    const ops::Dropout dropout = dropout_of(p, part, key);
    const at::Tensor input = together.defined() ? x : dropped(x, dropout);
    const at::Tensor z =
        together.defined() ? together.narrow(1, at, adapter.rank) : down(p, part, input);
    at += adapter.rank;
    const at::Tensor columns = out.narrow(1, part.first, part.size);
    if (adapter.magnitude >= 0)
      forward_scaled(p, projection, part, input, z, dropout.p > 0, columns);
    else
      add_scaled(columns, z, p.weight(adapter.b), adapter.scaling);
  }
}

at::Tensor base_gradient(const zero::UnitParameters& p, const Projection& projection,
                         const at::Tensor& dy, std::optional<uint64_t> key,
                         std::vector<dora::Lengths>& lengths) {
  const auto parts = parts_of(p, projection);
  at::Tensor scaled = dy;
  for (const Part& part : parts) {
    if (part.adapter->magnitude < 0) return dy;
    lengths.push_back(dora::lengths_of(p, *part.adapter));
    if (dropout_of(p, part, key).p > 0) continue;
    if (scaled.is_same(dy)) scaled = dy.clone();
    scaled.narrow(1, part.first, part.size).mul_(lengths.back().factor.to(dy.scalar_type()));
  }
  return scaled;
}

/// The backward pass of several adapters of one input, which is read once. False, with nothing done,
/// if their A are not adjacent, their scalings differ, or one has a magnitude or dropout.
static bool backward_together(const zero::UnitParameters& p, const std::vector<Part>& parts,
                              const at::Tensor& dy, const at::Tensor& x,
                              std::optional<uint64_t> key, at::Tensor dx) {
  if (parts.size() < 2) return false;
  const double s = parts[0].adapter->scaling;
  for (const Part& part : parts)
    if (part.adapter->scaling != s || part.adapter->magnitude >= 0 ||
        dropout_of(p, part, key).p > 0)
      return false;
  const at::Tensor a = stacked_a(p, parts);
  if (!a.defined()) return false;
  const auto a_grad = p.stacked_grad(parts[0].adapter->a, static_cast<int>(parts.size()));
  if (!a_grad.tensor.defined()) return false;
  const at::Tensor z = down_together(p, parts, x).mul_(s);
  at::Tensor dz = at::empty_like(z);
  int64_t at = 0;
  for (const Part& part : parts) {
    const int64_t rank = part.adapter->rank;
    const at::Tensor dout = dy.narrow(1, part.first, part.size);
    gemm::grad_weight(p.grad(part.adapter->b), dout, z.narrow(1, at, rank));
    gemm::grad_input(dz.narrow(1, at, rank), dout, p.weight(part.adapter->b), false);
    at += rank;
  }
  dz.mul_(s);
  gemm::grad_weight(a_grad, dz, x);
  gemm::grad_input(dx, dz, a, true);
  return true;
}

void adapters_backward(const zero::UnitParameters& p, const Projection& projection,
                       const at::Tensor& dy, const at::Tensor& x, std::optional<uint64_t> key,
                       const std::vector<dora::Lengths>& lengths, at::Tensor dx) {
  const auto parts = parts_of(p, projection);
  if (backward_together(p, parts, dy, x, key, dx)) return;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const double s = part.adapter->scaling;
    const ops::Dropout dropout = dropout_of(p, part, key);
    const at::Tensor input = dropped(x, dropout);
    at::Tensor dout = dy.narrow(1, part.first, part.size);
    const at::Tensor z = down(p, part, input).mul_(s);
    at::Tensor of_base;  // with dropout: what else the base's product of the dropped input gets
    if (part.adapter->magnitude >= 0) {
      const at::Tensor factor = lengths[i].factor.to(dy.scalar_type());
      magnitude_backward(p, part, dout, input, z, lengths[i]);
      if (dropout.p > 0) of_base = dout.mul(factor - 1);
      dout = dout.mul(factor);
    }
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
    if (of_base.defined()) gemm::grad_input(dinput, of_base, p.weight(part.adapter->weight), true);
    ops::dropout(dinput, dropout);
    dx.add_(dinput);
  }
}

}  // namespace dsj::models
