// Every operation by the CPU's kernels and by libtorch's operations (the oracle port), in fp32,
// bf16 and fp16. The latter are also what a device without kernels of its own runs, so this holds
// both to one answer.
#include "engine/models/ops/ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/support/oracle_port.h"

namespace dsj::models::ops {
namespace {

using testing_support::by_oracle;

class Ops : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(11); }
  static at::Tensor random(at::IntArrayRef shape) { return at::randn(shape).to(GetParam()); }
  /// fp32: rounding of a few operations. bf16: both sides round the same operations; sums in
  /// another order may move a result by one bf16 step, 2^-8 relative (fp16: 2^-10).
  static void expect_close(const at::Tensor& got, const at::Tensor& want) {
    ASSERT_EQ(got.scalar_type(), want.scalar_type());
    ASSERT_EQ(got.sizes(), want.sizes());
    const double step = GetParam() == at::kFloat  ? 2e-5
                        : GetParam() == at::kHalf ? 1.0 / 512
                                                  : 1.0 / 128;
    const at::Tensor a = got.to(at::kDouble), b = want.to(at::kDouble);
    const double worst = ((a - b).abs() / (b.abs() + 0.1)).max().item<double>();
    EXPECT_LT(worst, step);
  }
};

TEST_P(Ops, RmsNormAndItsGradient) {
  const at::Tensor x = random({70, 48}), w = random({48}), dy = random({70, 48});
  const Normed fast = rms_norm(x, w, 1e-6), slow = by_oracle([&] { return rms_norm(x, w, 1e-6); });
  expect_close(fast.y, slow.y);
  EXPECT_LT((fast.rstd - slow.rstd).abs().max().item<double>(), 1e-5);
  for (const bool accumulate : {false, true}) {
    const at::Tensor dx = random({70, 48}), dw = random({48});
    at::Tensor fast_dx = dx.clone(), slow_dx = dx.clone(), fast_dw = dw.clone(),
               slow_dw = dw.clone();
    rms_norm_backward(dy, x, w, slow.rstd, fast_dx, fast_dw, accumulate);
    by_oracle([&] { rms_norm_backward(dy, x, w, slow.rstd, slow_dx, slow_dw, accumulate); });
    expect_close(fast_dx, slow_dx);
    expect_close(fast_dw, slow_dw);
  }
}

TEST_P(Ops, LayerNormAndItsGradient) {
  const at::Tensor x = random({70, 48}) + 2, w = random({48}), b = random({48}),
                   dy = random({70, 48});
  const Normed fast = layer_norm(x, w, b, 1e-5);
  const Normed slow = by_oracle([&] { return layer_norm(x, w, b, 1e-5); });
  expect_close(fast.y, slow.y);
  expect_close(fast.y, at::layer_norm(x, {48}, w, b, 1e-5));
  EXPECT_LT((fast.mean - slow.mean).abs().max().item<double>(), 1e-5);
  EXPECT_LT((fast.rstd - slow.rstd).abs().max().item<double>(), 1e-5);
  for (const bool accumulate : {false, true}) {
    const at::Tensor dx = random({70, 48}), dw = random({48}), db = random({48});
    at::Tensor got[] = {dx.clone(), dw.clone(), db.clone()};
    at::Tensor want[] = {dx.clone(), dw.clone(), db.clone()};
    layer_norm_backward(dy, x, w, slow, got[0], got[1], got[2], accumulate);
    by_oracle([&] { layer_norm_backward(dy, x, w, slow, want[0], want[1], want[2], accumulate); });
    for (int i = 0; i < 3; ++i) expect_close(got[i], want[i]);
  }
}

TEST_P(Ops, GeluAndItsGradient) {
  const at::Tensor x = random({33, 40}) * 3, dy = random({33, 40});
  const at::Tensor want = by_oracle([&] { return gelu_new(x); });
  if (GetParam() == at::kFloat) {
    expect_close(gelu_new(x), want);
    expect_close(gelu_new(x), at::gelu(x, "tanh"));
  } else {
    // bf16 has steps of 2^-8 below 1: where both sides round tanh to neighbours, 1 + tanh moves by
    // such a step however small it is, and x / 2 times it with it. Two steps are allowed.
    const at::Tensor moved = (gelu_new(x) - want).to(at::kFloat).abs();
    EXPECT_TRUE(moved.le(x.to(at::kFloat).abs() / 256 + 1e-6).all().item<bool>());
    EXPECT_LT(moved.gt(0).to(at::kFloat).mean().item<double>(), 0.05);
  }
  at::Tensor fast = x.clone(), slow = x.clone();
  gelu_new_backward(dy, fast);
  by_oracle([&] { gelu_new_backward(dy, slow); });
  expect_close(fast, slow);
}

TEST_P(Ops, HeadNormOnAStridedRowAndItsGradient) {
  const at::Tensor x = random({40, 5 * 16}), w = random({16}), dy = random({40, 5 * 16});
  at::Tensor fast = x.clone(), slow = x.clone();
  const at::Tensor fast_rstd = head_norm(fast, w, 3, 1e-6);
  const at::Tensor rstd = by_oracle([&] { return head_norm(slow, w, 3, 1e-6); });
  expect_close(fast, slow);
  EXPECT_LT((fast_rstd - rstd).abs().max().item<double>(), 1e-5);
  EXPECT_TRUE(fast.narrow(1, 48, 32).equal(x.narrow(1, 48, 32))) << "only the first heads";
  for (const bool accumulate : {false, true}) {
    const at::Tensor dw = random({16});
    at::Tensor fast_dy = dy.clone(), slow_dy = dy.clone(), fast_dw = dw.clone(),
               slow_dw = dw.clone();
    head_norm_backward(fast_dy, x, w, rstd, fast_dw, accumulate);
    by_oracle([&] { head_norm_backward(slow_dy, x, w, rstd, slow_dw, accumulate); });
    expect_close(fast_dy, slow_dy);
    expect_close(fast_dw, slow_dw);
  }
}

TEST_P(Ops, RopeOnAStridedRow) {
  const RopeTable table = rope_table({}, 16, 12, at::TensorOptions().dtype(GetParam()));
  const at::Tensor x = random({14, 6 * 16});
  const std::vector<int64_t> lengths = {5, 1, 8}, firsts = {0, 11, 3};
  const RowBounds rows(lengths, at::kCPU, firsts);
  for (const bool inverse : {false, true}) {
    at::Tensor fast = x.clone(), slow = x.clone();
    rope(fast, table, rows.positions(), 4, 16, inverse);
    by_oracle([&] { rope(slow, table, rows.positions(), 4, 16, inverse); });
    expect_close(fast, slow);
    EXPECT_TRUE(fast.narrow(1, 64, 32).equal(x.narrow(1, 64, 32))) << "value heads are not rotated";
    EXPECT_FALSE(fast.narrow(1, 0, 64).equal(x.narrow(1, 0, 64)));
  }
}

TEST_P(Ops, SwigluAndItsGradient) {
  const at::Tensor gate_up = random({33, 2 * 40}), da = random({33, 40});
  expect_close(swiglu(gate_up), by_oracle([&] { return swiglu(gate_up); }));
  at::Tensor fast = gate_up.clone(), slow = gate_up.clone();
  swiglu_backward(da, fast);
  by_oracle([&] { swiglu_backward(da, slow); });
  expect_close(fast, slow);
}

TEST_P(Ops, CrossEntropyAndItsGradient) {
  const at::Tensor logits = random({19, 301}) * 3, labels = at::randint(301, {19}, at::kLong);
  at::Tensor fast = logits.clone(), slow = logits.clone();
  const auto losses = [] { return at::full({}, 7.0, at::kDouble); };
  const at::Tensor fast_loss = losses(), slow_loss = losses();
  cross_entropy(fast, labels, 0.5, fast_loss);
  by_oracle([&] { cross_entropy(slow, labels, 0.5, slow_loss); });
  const double want = slow_loss.item<double>() - 7;
  EXPECT_NEAR(fast_loss.item<double>() - 7, want, 1e-5 * want);
  expect_close(fast, slow);
}

TEST_P(Ops, ScatteredRowsAreAddedUpInFp32) {
  // A frequent token: in 16 bits a sum that has grown would take no more of what is added.
  const int64_t rows = 6000;
  const at::Tensor index = at::arange(rows, at::kLong).remainder(3);
  const at::Tensor x = at::full({rows, 5}, 0.25).to(GetParam()), start = random({4, 5});
  const at::Tensor want =
      start.to(at::kFloat) + at::tensor({500.0f, 500.0f, 500.0f, 0.0f}).unsqueeze(1);
  const at::Tensor fast = start.clone(), slow = start.clone();
  scatter_rows(x, index, fast);
  by_oracle([&] { scatter_rows(x, index, slow); });
  expect_close(fast, want.to(GetParam()));
  expect_close(slow, want.to(GetParam()));
  EXPECT_TRUE(fast[3].equal(start[3]));
}

INSTANTIATE_TEST_SUITE_P(Types, Ops, testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

}  // namespace
}  // namespace dsj::models::ops
