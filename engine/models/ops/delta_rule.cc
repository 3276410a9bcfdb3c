#include "engine/models/ops/delta_rule.h"

#include <ATen/ATen.h>

#include <limits>

namespace dsj::models::ops {
namespace {

/// x [C, H, T, D] times a factor per token [C, H, T].
at::Tensor by_token(const at::Tensor& x, const at::Tensor& factor) {
  return x * factor.unsqueeze(-1);
}

/// Solves M X = right, M [C, H, T, T] unit lower triangular, or M^T X = right if transposed. Does
/// not read M's diagonal and what is above it.
at::Tensor solve(const at::Tensor& m, const at::Tensor& right, bool transposed) {
  return at::linalg_solve_triangular(transposed ? m.mT() : m, right, /*upper=*/transposed,
                                     /*left=*/true, /*unitriangular=*/true);
}

}  // namespace

DeltaRule::DeltaRule(const DeltaChunks& chunks, std::span<const int64_t> rows)
    : c_(chunks), rows_(rows.begin(), rows.end()) {
  const at::Tensor sum = c_.g.cumsum(-1);
  const int64_t tokens = sum.size(-1);
  const at::Tensor above = at::ones({tokens, tokens}, c_.g.options().dtype(at::kBool)).triu_(1);
  decay_ = (sum.unsqueeze(-1) - sum.unsqueeze(-2))
               .masked_fill_(above, -std::numeric_limits<double>::infinity())
               .exp_();
  from_start_ = sum.exp();
  const at::Tensor last = sum.narrow(-1, tokens - 1, 1);
  to_end_ = (last - sum).exp_();
  over_ = last.exp().unsqueeze(-1);
  scores_ = at::matmul(c_.q, c_.k.mT()).mul_(decay_);
  if (corrects()) {
    system_ = at::matmul(by_token(c_.k, c_.beta), c_.k.mT()).mul_(decay_);
    values_ = solve(system_, by_token(c_.v, c_.beta), false);
    keys_ = solve(system_, by_token(c_.k, c_.beta * from_start_), false);
  }
  starting_ = by_token(c_.q, from_start_);
  ending_ = by_token(c_.k, to_end_);
}

/// Calls f(x → its part of the step's chunks, rows) for each step, in order or in reverse.
template <typename F>
void DeltaRule::each_step(bool backwards, F f) const {
  int64_t first = backwards ? c_.k.size(0) : 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const int64_t count = rows_[backwards ? rows_.size() - 1 - i : i];
    if (backwards) first -= count;
    f([&](const at::Tensor& x) { return x.narrow(0, first, count); }, count);
    if (!backwards) first += count;
  }
}

at::Tensor DeltaRule::forward(at::Tensor state, bool keep) {
  if (keep) {
    states_ = at::empty({c_.k.size(0), c_.k.size(1), c_.k.size(3), c_.v.size(3)}, c_.v.options());
    written_ = at::empty_like(c_.v);
  }
  at::Tensor out = at::empty_like(c_.v);
  each_step(false, [&](const auto& of, int64_t count) {
    const at::Tensor running = state.narrow(0, 0, count);
    const at::Tensor written = corrects() ? of(values_) - at::matmul(of(keys_), running) : of(c_.v);
    of(out).copy_(at::matmul(of(starting_), running).add_(at::matmul(of(scores_), written)));
    if (keep) {
      of(states_).copy_(running);
      of(written_).copy_(written);
    }
    running.mul_(of(over_)).add_(at::matmul(of(ending_).mT(), written));
  });
  return out;
}

DeltaChunks DeltaRule::backward(const at::Tensor& dout, at::Tensor dstate) {
  // Through the states: the gradients of each chunk's writes and of the state after it.
  at::Tensor dwritten = at::matmul(scores_.mT(), dout);
  at::Tensor dbehind = at::empty_like(states_);
  each_step(true, [&](const auto& of, int64_t count) {
    const at::Tensor d = dstate.narrow(0, 0, count);
    of(dbehind).copy_(d);
    of(dwritten).add_(at::matmul(of(ending_), d));
    d.mul_(of(over_)).add_(at::matmul(of(starting_).mT(), of(dout)));
    if (corrects()) d.sub_(at::matmul(of(keys_).mT(), of(dwritten)));
  });

  // All chunks at once. dsum: the gradient of G.
  DeltaChunks d;
  at::Tensor dscores = at::matmul(dout, written_.mT());
  at::Tensor dsum = (dscores * scores_).sum(-1) - (dscores * scores_).sum(-2);
  dscores.mul_(decay_);
  d.q = at::matmul(dscores, c_.k);
  d.k = at::matmul(dscores.mT(), c_.q);
  {
    const at::Tensor dstarting = at::matmul(dout, states_.mT());
    dsum.add_((dstarting * starting_).sum(-1));
    d.q.add_(by_token(dstarting, from_start_));
  }
  {
    const at::Tensor dending = at::matmul(written_, dbehind.mT());
    const at::Tensor sums = (dending * ending_).sum(-1);
    dsum.sub_(sums);
    dsum.select(-1, dsum.size(-1) - 1)
        .add_(sums.sum(-1))
        .add_((dbehind * states_)
                  .sum(at::IntArrayRef{-2, -1})
                  .mul_(over_.select(-1, 0).select(-1, 0)));
    d.k.add_(by_token(dending, to_end_));
  }
  dbehind.reset();
  if (corrects())
    backward_writes(dwritten, d, dsum);
  else
    d.v = dwritten;
  d.g = dsum.flip(-1).cumsum(-1).flip(-1);
  return d;
}

void DeltaRule::backward_writes(const at::Tensor& dwritten, DeltaChunks& d, at::Tensor dsum) {
  const at::Tensor dkeys = at::matmul(dwritten, states_.mT()).neg_();
  states_.reset();
  written_.reset();
  const at::Tensor dright_values = solve(system_, dwritten, true);
  const at::Tensor dright_keys = solve(system_, dkeys, true);
  d.v = by_token(dright_values, c_.beta);
  d.beta = (dright_values * c_.v).sum(-1);
  const at::Tensor by_keys = (dright_keys * c_.k).sum(-1);
  const at::Tensor strength = c_.beta * from_start_;
  d.beta.addcmul_(by_keys, from_start_);
  dsum.addcmul_(by_keys, strength);
  d.k.add_(by_token(dright_keys, strength));

  at::Tensor dsystem = at::matmul(dright_values, values_.mT())
                           .add_(at::matmul(dright_keys, keys_.mT()))
                           .neg_()
                           .tril_(-1);
  const at::Tensor exponents = dsystem * system_;
  dsum.add_(exponents.sum(-1)).sub_(exponents.sum(-2));
  dsystem.mul_(decay_);
  d.beta.add_((dsystem * at::matmul(c_.k, c_.k.mT())).sum(-1));
  dsystem.mul_(c_.beta.unsqueeze(-1));
  d.k.add_(at::matmul(dsystem + dsystem.mT(), c_.k));
}

}  // namespace dsj::models::ops
