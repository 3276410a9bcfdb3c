// The gated delta rule in chunks against the rule itself, token by token in double, on autograd.
#include "engine/models/ops/delta_rule.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <random>

#include "job/layout/shape/delta_pieces.h"

namespace dsj::models::ops {
namespace {

/// Of one row and head: q, k [L, key], v [L, value], g, beta [L]. `state` [key, value] is replaced.
at::Tensor token_by_token(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& g, const at::Tensor& beta, at::Tensor& state) {
  std::vector<at::Tensor> out;
  for (int64_t t = 0; t < q.size(0); ++t) {
    state = state * g[t].exp();
    const at::Tensor missing = v[t] - at::matmul(k[t], state);
    state = state + at::outer(k[t], missing * beta[t]);
    out.push_back(at::matmul(q[t], state));
  }
  return at::stack(out);
}

struct DrawnRows {
  std::vector<int64_t> lengths;
  int64_t heads, key, value;
  double decay;  ///< of a token, about
};

/// A row's tensors, [L, H, D] and [L, H], and what they are in the chunks of a group.
struct RuleRow {
  at::Tensor q, k, v, g, beta, state, dout, dstate;
};

double rule_apart(const at::Tensor& got, const at::Tensor& want) {
  const double size = want.norm().item<double>();
  const double distance = (got.to(at::kDouble) - want).norm().item<double>();
  return size > 0 ? distance / size : distance;
}

/// [C, H, T, ...] of the rows' [L, H, ...], 0 where a chunk is filled up.
at::Tensor in_chunks(const layout::DeltaGroup& group, const layout::DeltaPiece& piece,
                     const std::vector<at::Tensor>& rows) {
  std::vector<at::Tensor> chunks;
  for (size_t step = 0; step < piece.rows.size(); ++step) {
    for (int64_t i = 0; i < piece.rows[step]; ++i) {
      const at::Tensor& row = rows[group.rows[i]];
      const int64_t first = (piece.first_step + static_cast<int64_t>(step)) * group.chunk;
      const int64_t count = std::min(group.chunk, row.size(0) - first);
      std::vector<int64_t> sizes = row.sizes().vec();
      sizes[0] = group.chunk;
      at::Tensor chunk = at::zeros(sizes, row.options());
      chunk.narrow(0, 0, count).copy_(row.narrow(0, first, count));
      chunks.push_back(chunk.transpose(0, 1));
    }
  }
  return at::stack(chunks).to(at::kFloat).contiguous();
}

/// The chunks' rows, [L, H, ...], added to what `rows` has.
void from_chunks(const layout::DeltaGroup& group, const layout::DeltaPiece& piece,
                 const at::Tensor& chunks, std::vector<at::Tensor>& rows) {
  int64_t chunk = 0;
  for (size_t step = 0; step < piece.rows.size(); ++step) {
    for (int64_t i = 0; i < piece.rows[step]; ++i, ++chunk) {
      at::Tensor& row = rows[group.rows[i]];
      const int64_t first = (piece.first_step + static_cast<int64_t>(step)) * group.chunk;
      const int64_t count = std::min(group.chunk, row.size(0) - first);
      row.narrow(0, first, count).copy_(chunks[chunk].transpose(0, 1).narrow(0, 0, count));
    }
  }
}

void expect_rule(const DrawnRows& drawn) {
  const auto normal = [](std::vector<int64_t> sizes) { return at::randn(sizes, at::kDouble); };
  std::vector<RuleRow> rows;
  for (const int64_t length : drawn.lengths) {
    RuleRow row;
    const auto keys = [&] {
      const at::Tensor x = normal({length, drawn.heads, drawn.key});
      return x / x.norm(2, at::IntArrayRef{-1}, true);
    };
    row.q = keys(), row.k = keys();
    row.v = normal({length, drawn.heads, drawn.value});
    row.g = normal({length, drawn.heads}).abs().mul_(-drawn.decay);
    row.beta = normal({length, drawn.heads}).sigmoid();
    row.state = normal({drawn.heads, drawn.key, drawn.value});
    row.dout = normal(row.v.sizes().vec());
    row.dstate = normal(row.state.sizes().vec());
    rows.push_back(std::move(row));
  }
  const auto of = [&](at::Tensor RuleRow::*member) {
    std::vector<at::Tensor> all;
    for (const RuleRow& row : rows) all.push_back(row.*member);
    return all;
  };
  const auto like = [&](at::Tensor RuleRow::*member) {
    std::vector<at::Tensor> all;
    for (const RuleRow& row : rows) all.push_back(at::zeros_like(row.*member));
    return all;
  };
  std::vector<at::Tensor> out = like(&RuleRow::v), ends = like(&RuleRow::state), begins = ends;
  std::vector<at::Tensor> dq = like(&RuleRow::q), dk = dq, dv = out, dg = like(&RuleRow::g);
  std::vector<at::Tensor> dbeta = dg;
  for (auto* list : {&dk, &dv, &dbeta, &begins})
    for (at::Tensor& one : *list) one = at::zeros_like(one);

  for (const auto& group : layout::delta_groups(drawn.lengths)) {
    std::vector<at::Tensor> first, last;
    for (const int64_t row : group.rows) {
      first.push_back(rows[row].state);
      last.push_back(rows[row].dstate);
    }
    at::Tensor state = at::stack(first).to(at::kFloat);
    std::vector<at::Tensor> starts;
    std::vector<DeltaRule> rules;
    for (const auto& piece : group.pieces) {
      const auto chunks = [&](at::Tensor RuleRow::*member) {
        return in_chunks(group, piece, of(member));
      };
      rules.emplace_back(DeltaChunks{.q = chunks(&RuleRow::q),
                                     .k = chunks(&RuleRow::k),
                                     .v = chunks(&RuleRow::v),
                                     .g = chunks(&RuleRow::g),
                                     .beta = chunks(&RuleRow::beta)},
                         piece.rows);
      const at::Tensor running = state.narrow(0, 0, piece.rows.front());
      from_chunks(group, piece, rules.back().forward(running, /*keep=*/true), out);
    }
    at::Tensor dstate = at::stack(last).to(at::kFloat);
    for (size_t i = group.pieces.size(); i-- > 0;) {
      const auto& piece = group.pieces[i];
      const DeltaChunks d = rules[i].backward(in_chunks(group, piece, of(&RuleRow::dout)),
                                              dstate.narrow(0, 0, piece.rows.front()));
      from_chunks(group, piece, d.q, dq);
      from_chunks(group, piece, d.k, dk);
      from_chunks(group, piece, d.v, dv);
      from_chunks(group, piece, d.g, dg);
      from_chunks(group, piece, d.beta, dbeta);
    }
    for (size_t i = 0; i < group.rows.size(); ++i) {
      ends[group.rows[i]] = state[static_cast<int64_t>(i)];
      begins[group.rows[i]] = dstate[static_cast<int64_t>(i)];
    }
  }

  for (size_t row = 0; row < rows.size(); ++row) {
    SCOPED_TRACE("row " + std::to_string(row) + " of " + std::to_string(drawn.lengths[row]));
    const c10::AutoGradMode enabled(true);
    RuleRow twin = rows[row];
    for (at::Tensor* x : {&twin.q, &twin.k, &twin.v, &twin.g, &twin.beta, &twin.state})
      *x = x->clone().set_requires_grad(true);
    std::vector<at::Tensor> heads, states;
    for (int64_t head = 0; head < drawn.heads; ++head) {
      const auto one = [&](const at::Tensor& x) { return x.select(1, head); };
      at::Tensor state = twin.state[head];
      heads.push_back(token_by_token(one(twin.q), one(twin.k), one(twin.v), one(twin.g),
                                     one(twin.beta), state));
      states.push_back(state);
    }
    const at::Tensor want = at::stack(heads, 1), end = at::stack(states);
    ((want * twin.dout).sum() + (end * twin.dstate).sum()).backward();
    const c10::AutoGradMode disabled(false);
    constexpr double kTolerance = 2e-5;
    EXPECT_LT(rule_apart(out[row], want), kTolerance);
    EXPECT_LT(rule_apart(ends[row], end), kTolerance);
    EXPECT_LT(rule_apart(dq[row], twin.q.grad()), kTolerance);
    EXPECT_LT(rule_apart(dk[row], twin.k.grad()), kTolerance);
    EXPECT_LT(rule_apart(dv[row], twin.v.grad()), kTolerance);
    EXPECT_LT(rule_apart(dg[row], twin.g.grad()), kTolerance);
    EXPECT_LT(rule_apart(dbeta[row], twin.beta.grad()), kTolerance);
    EXPECT_LT(rule_apart(begins[row], twin.state.grad()), kTolerance);
  }
}

TEST(DeltaRule, IsTheRuleTokenByToken) {
  at::manual_seed(3);
  expect_rule({{1}, 1, 4, 4, 0.1});
  expect_rule({{5}, 2, 4, 6, 0.1});
  expect_rule({{64}, 2, 8, 8, 0.02});
  expect_rule({{65, 63, 1}, 2, 8, 4, 0.5});
  expect_rule({{300, 20}, 1, 8, 8, 0.01});
}

TEST(DeltaRule, OfDrawnRows) {
  at::manual_seed(4);
  std::mt19937 random(5);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int i = 0; i < 12; ++i) {
    DrawnRows drawn{{}, draw(1, 3), draw(1, 9), draw(1, 9), i % 2 == 0 ? 0.05 : 2.0};
    for (int64_t row = draw(1, 6); row > 0; --row)
      drawn.lengths.push_back(draw(0, 3) > 0 ? draw(1, 70) : draw(1, 330));
    expect_rule(drawn);
  }
}

/// A state that nothing is left of: exp of the decays is 0 in fp32, and no quotient of two of them.
TEST(DeltaRule, FastDecaysGiveNumbers) {
  at::manual_seed(6);
  expect_rule({{130}, 1, 4, 4, 30.0});
}

}  // namespace
}  // namespace dsj::models::ops
