// Attention and its gradient against autograd on the plain formula: shared heads, windows, scales,
// dropout; and one token at a time with a cache.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/models/unit/unit.h"

namespace dsj::models::ops {
namespace {

struct Case {
  const char* name;
  Attention shape;
  std::vector<int64_t> lengths = {11, 11};

  RowBounds rows() const { return RowBounds(lengths, at::kCPU); }
  int64_t width() const { return (shape.heads + 2 * shape.kv_heads) * shape.dim; }
};

class AttentionOracle : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(5); }
};

/// What dropout multiplies the probabilities of a row by: a block of queries has its own draws.
at::Tensor mask_of(const Attention& s, int64_t row, int64_t length) {
  at::Tensor mask = at::ones({1, s.heads, length, length});
  const uint64_t key = dropout_key(s.dropout.key, row);
  for (int64_t first = 0; first<length; first += s.queries> 0 ? s.queries : length) {
    const int64_t count = std::min(s.queries > 0 ? s.queries : length, length - first);
    const int64_t from = s.window > 0 ? std::max<int64_t>(0, first - s.window + 1) : 0;
    const at::Tensor block = at::ones({1, s.heads, count, first + count - from});
    dropout(block, {s.dropout.p, first == 0 ? key : dropout_key(key, first)});
    mask.narrow(2, first, count).narrow(3, from, block.size(3)).copy_(block);
  }
  return mask;
}

/// One row by itself: qkv [length, ..].
at::Tensor plain_row(const at::Tensor& qkv, const Attention& s, int64_t index) {
  const int64_t seq = qkv.size(0);
  const at::Tensor all = qkv.view({1, seq, s.heads + 2 * s.kv_heads, s.dim}).transpose(1, 2);
  auto shared = [&](int64_t first) {
    return all.narrow(1, first, s.kv_heads).repeat_interleave(s.heads / s.kv_heads, 1);
  };
  const at::Tensor row = at::arange(seq).unsqueeze(1), column = at::arange(seq).unsqueeze(0);
  at::Tensor hidden = column > row;
  if (s.window > 0) hidden = hidden.logical_or(column <= row - s.window);
  at::Tensor p = (all.narrow(1, 0, s.heads).matmul(shared(s.heads).transpose(2, 3)) * s.scale)
                     .masked_fill(hidden, -INFINITY)
                     .softmax(-1);
  if (s.dropout.p > 0) p = p * mask_of(s, index, seq);
  return p.matmul(shared(s.heads + s.kv_heads)).transpose(1, 2).reshape({seq, s.heads * s.dim});
}

at::Tensor plain(const at::Tensor& qkv, const RowBounds& rows, const Attention& s) {
  std::vector<at::Tensor> out;
  for (int64_t row = 0; row < rows.rows(); ++row)
    out.push_back(plain_row(qkv.narrow(0, rows.starts()[row], rows.length(row)), s, row));
  return at::cat(out);
}

TEST_P(AttentionOracle, ForwardAndGradient) {
  const Attention& s = GetParam().shape;
  const RowBounds rows = GetParam().rows();
  const at::Tensor qkv = at::randn({rows.tokens(), GetParam().width()}).requires_grad_();
  const at::Tensor want = plain(qkv, rows, s), dout = at::randn_like(want);
  const at::Tensor want_gradient = torch::autograd::grad({want}, {qkv}, {dout})[0];
  c10::AutoGradMode no_autograd(false);
  const Attended got = attention(qkv, rows, s);
  EXPECT_LT((got.out - want).abs().max().item<double>(), 1e-5);
  const at::Tensor gradient = attention_backward(dout, qkv.detach().clone(), got, rows, s);
  EXPECT_LT((gradient - want_gradient).abs().max().item<double>(), 2e-5);
}

TEST_P(AttentionOracle, ATokenAtATimeIsTheSame) {
  const Attention& s = GetParam().shape;
  if (s.dropout.p > 0) GTEST_SKIP() << "nothing is dropped in inference";
  c10::AutoGradMode no_autograd(false);
  const RowBounds all = GetParam().rows();
  const at::Tensor qkv = at::randn({all.tokens(), GetParam().width()});
  const at::Tensor want = plain(qkv, all, s);
  const at::Tensor k = at::empty({all.rows(), s.kv_heads, all.positions_end(), s.dim}),
                   v = at::empty_like(k);
  // Prompts of other lengths, then a token of each row that has one left.
  std::vector<int64_t> firsts(all.rows(), 0), lengths;
  for (int64_t row = 0; row < all.rows(); ++row) lengths.push_back(1 + row % all.length(row));
  for (bool left = true; left;) {
    const RowBounds part(lengths, at::kCPU, firsts);
    std::vector<int64_t> tokens;
    for (int64_t row = 0; row < all.rows(); ++row) {
      for (int64_t t = 0; t < lengths[row]; ++t)
        tokens.push_back(all.starts()[row] + firsts[row] + t);
    }
    const at::Tensor index = at::tensor(tokens);
    const at::Tensor got = attention_cached(qkv.index_select(0, index), part, s, k, v);
    const at::Tensor difference = got - want.index_select(0, index);
    EXPECT_LT(difference.abs().max().item<double>(), 1e-5) << firsts[0];
    left = false;
    for (int64_t row = 0; row < all.rows(); ++row) {
      const int64_t next = firsts[row] + lengths[row];
      left = left || next < all.length(row);
      firsts[row] = std::min(next, all.length(row) - 1);  // at its end a row repeats its last token
      lengths[row] = 1;
    }
  }
}

const Attention kBase{.heads = 4, .kv_heads = 2, .dim = 8, .scale = 0.3};

Attention with(int64_t window, double p, int64_t kv_heads) {
  Attention shape = kBase;
  shape.window = window;
  shape.dropout = {p, 77};
  shape.kv_heads = kv_heads;
  return shape;
}

/// A few queries at a time, as in a long row.
Attention in_blocks(Attention shape) {
  shape.queries = 4;
  return shape;
}

const std::vector<int64_t> kRagged = {3, 11, 11, 2, 7};

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionOracle,
    testing::Values(Case{"full", with(0, 0, 4)}, Case{"shared_heads", with(0, 0, 2)},
                    Case{"window", with(3, 0, 1)}, Case{"window_of_one", with(1, 0, 2)},
                    Case{"window_beyond_the_sequence", with(11, 0, 2)},
                    Case{"dropout", with(0, 0.4, 2)}, Case{"dropout_in_a_window", with(5, 0.2, 4)},
                    Case{"ragged", with(0, 0, 4), kRagged},
                    Case{"ragged_shared_heads", with(0, 0, 2), kRagged},
                    Case{"ragged_window", with(3, 0, 2), kRagged},
                    Case{"ragged_dropout", with(0, 0.4, 2), kRagged},
                    Case{"window_in_blocks", in_blocks(with(3, 0, 2))},
                    Case{"wide_window_in_blocks", in_blocks(with(9, 0, 4)), kRagged},
                    Case{"dropout_in_blocks", in_blocks(with(0, 0.4, 2)), kRagged},
                    Case{"dropout_in_a_window_in_blocks", in_blocks(with(5, 0.2, 4))}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Dropout, KeepsTheMeanAndRepeatsByKey) {
  const at::Tensor a = at::ones({400, 100}), b = a.clone(), c = a.clone();
  dropout(a, {0.25, 9});
  dropout(b, {0.25, 9});
  dropout(c, {0.25, 10});
  EXPECT_TRUE(a.equal(b));
  EXPECT_FALSE(a.equal(c));
  EXPECT_NEAR(a.mean().item<double>(), 1.0, 0.01);
  EXPECT_NEAR(a.eq(0).to(at::kFloat).mean().item<double>(), 0.25, 0.01);
  EXPECT_EQ(a.max().item<float>(), 1.0f / 0.75f);
  dropout(c, {0, 10});
  EXPECT_NE(dropout_key(1, 2), dropout_key(2, 1));
}

}  // namespace
}  // namespace dsj::models::ops
