#include "tests/engine/simulated/flash.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace dsj::simulated {
namespace {

void check(const FlashCall& c) {
  for (const at::Tensor& x : {c.q, c.k, c.v}) {
    TORCH_CHECK(x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf);
    TORCH_CHECK(x.dim() == 3 && x.stride(2) == 1, "neighbours in a head must be adjacent");
    TORCH_CHECK(x.size(2) % 8 == 0 && x.size(2) <= 256, "a head of ", x.size(2));
    TORCH_CHECK(reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0, "heads must be aligned");
    TORCH_CHECK(x.stride(1) % 8 == 0 && x.stride(0) % 8 == 0, "and those of other tokens, too");
  }
  TORCH_CHECK(c.k.sizes() == c.v.sizes() && c.q.size(1) % c.k.size(1) == 0);
  for (const at::Tensor& starts : {c.starts_q, c.starts_k}) {
    TORCH_CHECK(starts.scalar_type() == at::kInt && starts.is_contiguous() && starts.dim() == 1);
    TORCH_CHECK(starts[0].item<int>() == 0 && starts[-1].item<int>() == c.q.size(0));
  }
  const at::Tensor lengths = c.starts_q.diff();
  TORCH_CHECK(c.starts_q.equal(c.starts_k) && lengths.max().item<int64_t>() == c.longest_q &&
              c.longest_k == c.longest_q);
  TORCH_CHECK(c.dropout == 0 && c.causal);
  TORCH_CHECK(c.left.has_value() == c.right.has_value() && c.right.value_or(0) == 0);
}

/// One row and one group: [heads or 1, length, dim] in fp32.
struct Row {
  int64_t first, length;
  at::Tensor q, k, v;
};

Row row_of(const FlashCall& c, int64_t row) {
  const auto first = c.starts_q[row].item<int64_t>();
  const int64_t length = c.starts_q[row + 1].item<int64_t>() - first;
  const int64_t times = c.q.size(1) / c.k.size(1);
  const auto part = [&](const at::Tensor& x) {
    return x.narrow(0, first, length).transpose(0, 1).to(at::kFloat);
  };
  return {first, length, part(c.q), part(c.k).repeat_interleave(times, 0),
          part(c.v).repeat_interleave(times, 0)};
}

at::Tensor scores(const FlashCall& c, const Row& r) {
  const at::Tensor at_row = at::arange(r.length).unsqueeze(1), column = at::arange(r.length);
  at::Tensor hidden = column > at_row;
  if (c.left) hidden = hidden.logical_or(column < at_row - *c.left);
  return at::matmul(r.q, r.k.transpose(1, 2)).mul_(c.scale).masked_fill_(hidden, -INFINITY);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> flash_forward(const FlashCall& c) {
  check(c);
  const at::Tensor out = at::empty(c.q.sizes(), c.q.options());
  const at::Tensor logsumexp = at::empty({c.q.size(1), c.q.size(0)});
  for (int64_t row = 0; row + 1 < c.starts_q.numel(); ++row) {
    const Row r = row_of(c, row);
    const at::Tensor s = scores(c, r);
    out.narrow(0, r.first, r.length).copy_(at::matmul(s.softmax(-1), r.v).transpose(0, 1));
    logsumexp.narrow(1, r.first, r.length).copy_(s.logsumexp(-1));
  }
  return {out, logsumexp};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(const FlashCall& c,
                                                              const at::Tensor& dout,
                                                              const at::Tensor& out,
                                                              const at::Tensor& logsumexp) {
  check(c);
  TORCH_CHECK(dout.sizes() == c.q.sizes() && out.sizes() == c.q.sizes() && dout.stride(2) == 1);
  const at::Tensor dq = at::empty(c.q.sizes(), c.q.options()),
                   dk = at::empty(c.k.sizes(), c.k.options()), dv = at::empty_like(dk);
  const int64_t groups = c.k.size(1), times = c.q.size(1) / groups;
  for (int64_t row = 0; row + 1 < c.starts_q.numel(); ++row) {
    const Row r = row_of(c, row);
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, r.first, r.length); };
    const auto wide = [&](const at::Tensor& x) { return part(x).transpose(0, 1).to(at::kFloat); };
    const auto put = [&](const at::Tensor& to, const at::Tensor& x) {
      part(to).copy_(x.transpose(0, 1));
    };
    const auto fold = [&](const at::Tensor& x) { return x.unflatten(0, {groups, times}).sum(1); };
    const at::Tensor d = wide(dout);
    const at::Tensor p =
        (scores(c, r) - logsumexp.narrow(1, r.first, r.length).unsqueeze(2)).exp_();
    const at::Tensor dp = at::matmul(d, r.v.transpose(1, 2));
    const at::Tensor ds = (dp - (d * wide(out)).sum(-1, true)).mul_(p).mul_(c.scale);
    put(dq, at::matmul(ds, r.k));
    put(dk, fold(at::matmul(ds.transpose(1, 2), r.q)));
    put(dv, fold(at::matmul(p.transpose(1, 2), d)));
  }
  return {dq, dk, dv};
}

}  // namespace dsj::simulated
