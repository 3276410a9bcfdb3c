// Attention and its gradient against autograd on the plain formula: shared heads, windows, scales,
// dropout; and one token at a time with a cache.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "engine/models/unit.h"

namespace dsj::models::ops {
namespace {

struct Case {
  const char* name;
  Attention shape;
};

class AttentionOracle : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::manual_seed(5); }
};

/// What dropout multiplies the probabilities of sequence b by.
at::Tensor mask_of(const Attention& s, int64_t b) {
  at::Tensor mask = at::ones({1, s.heads, s.seq, s.seq});
  dropout(mask, {s.dropout.p, dropout_key(s.dropout.key, b)});
  return mask;
}

at::Tensor plain(const at::Tensor& qkv, const Attention& s) {
  const at::Tensor all =
      qkv.view({s.batch, s.seq, s.heads + 2 * s.kv_heads, s.dim}).transpose(1, 2);
  auto shared = [&](int64_t first) {
    return all.narrow(1, first, s.kv_heads).repeat_interleave(s.heads / s.kv_heads, 1);
  };
  const at::Tensor row = at::arange(s.seq).unsqueeze(1), column = at::arange(s.seq).unsqueeze(0);
  at::Tensor hidden = column > row;
  if (s.window > 0) hidden = hidden.logical_or(column <= row - s.window);
  at::Tensor p = (all.narrow(1, 0, s.heads).matmul(shared(s.heads).transpose(2, 3)) * s.scale)
                     .masked_fill(hidden, -INFINITY)
                     .softmax(-1);
  if (s.dropout.p > 0) {
    std::vector<at::Tensor> masks;
    for (int64_t b = 0; b < s.batch; ++b) masks.push_back(mask_of(s, b));
    p = p * at::cat(masks);
  }
  return p.matmul(shared(s.heads + s.kv_heads))
      .transpose(1, 2)
      .reshape({s.batch * s.seq, s.heads * s.dim});
}

TEST_P(AttentionOracle, ForwardAndGradient) {
  const Attention& s = GetParam().shape;
  const at::Tensor qkv =
      at::randn({s.batch * s.seq, (s.heads + 2 * s.kv_heads) * s.dim}).requires_grad_();
  const at::Tensor want = plain(qkv, s), dout = at::randn_like(want);
  const at::Tensor want_gradient = torch::autograd::grad({want}, {qkv}, {dout})[0];
  c10::AutoGradMode no_autograd(false);
  const Attended got = attention(qkv, s);
  EXPECT_LT((got.out - want).abs().max().item<double>(), 1e-5);
  const at::Tensor gradient = attention_backward(dout, qkv, got, s);
  EXPECT_LT((gradient - want_gradient).abs().max().item<double>(), 2e-5);
}

TEST_P(AttentionOracle, ATokenAtATimeIsTheSame) {
  Attention s = GetParam().shape;
  if (s.dropout.p > 0) GTEST_SKIP() << "nothing is dropped in inference";
  c10::AutoGradMode no_autograd(false);
  const at::Tensor qkv = at::randn({s.batch * s.seq, (s.heads + 2 * s.kv_heads) * s.dim});
  const at::Tensor want = plain(qkv, s).view({s.batch, s.seq, -1});
  const at::Tensor rows = qkv.view({s.batch, s.seq, -1});
  const at::Tensor k = at::empty({s.batch, s.kv_heads, s.seq, s.dim}), v = at::empty_like(k);
  const int64_t prompt = 4;
  for (int64_t first = 0; first < s.seq; first += first == 0 ? prompt : 1) {
    const int64_t fresh = first == 0 ? prompt : 1;
    Attention part = s;
    part.seq = fresh;
    const at::Tensor got = attention_cached(
        rows.narrow(1, first, fresh).reshape({s.batch * fresh, rows.size(2)}), part, first, k, v);
    const at::Tensor difference = got.view({s.batch, fresh, -1}) - want.narrow(1, first, fresh);
    EXPECT_LT(difference.abs().max().item<double>(), 1e-5) << first;
  }
}

constexpr Attention kBase{.batch = 2, .seq = 11, .heads = 4, .kv_heads = 2, .dim = 8, .scale = 0.3};

Attention with(Attention shape, int64_t window, double p, int64_t kv_heads) {
  shape.window = window;
  shape.dropout = {p, 77};
  shape.kv_heads = kv_heads;
  return shape;
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionOracle,
                         testing::Values(Case{"full", with(kBase, 0, 0, 4)},
                                         Case{"shared_heads", with(kBase, 0, 0, 2)},
                                         Case{"window", with(kBase, 3, 0, 1)},
                                         Case{"window_of_one", with(kBase, 1, 0, 2)},
                                         Case{"window_beyond_the_sequence", with(kBase, 11, 0, 2)},
                                         Case{"dropout", with(kBase, 0, 0.4, 2)},
                                         Case{"dropout_in_a_window", with(kBase, 5, 0.2, 4)}),
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
