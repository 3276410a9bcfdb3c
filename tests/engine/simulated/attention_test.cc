// Attention by the path of a GPU against the CPU's: rows of all lengths, shared heads, windows. One
// call for all rows, and nothing is copied on its way in.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/models/ops/ops.h"
#include "tests/engine/simulated/device.h"

namespace dsj::models::ops {
namespace {

struct RowsCase {
  const char* name;
  int64_t kv_heads, window;
  std::vector<int64_t> lengths;
};

class AttentionByRows : public testing::TestWithParam<RowsCase> {};

TEST_P(AttentionByRows, EqualsTheCpusRunByRun) {
  const auto& [name, kv_heads, window, lengths] = GetParam();
  const Attention shape{.heads = 4, .kv_heads = kv_heads, .dim = 8, .scale = 0.3, .window = window};
  const at::Device gpu = simulated::device();
  const RowBounds here(lengths, at::kCPU), there(lengths, gpu);
  at::manual_seed(5);
  const at::Tensor qkv = at::randn({here.tokens(), (4 + 2 * kv_heads) * 8}).to(at::kBFloat16),
                   dout = at::randn({here.tokens(), 32}).to(at::kBFloat16);
  const at::Tensor wide = qkv.to(at::kFloat);
  const Attended want = attention(wide, here, shape);
  const at::Tensor want_gradient = attention_backward(dout.to(at::kFloat), wide, want, here, shape);

  const at::Tensor qkv_there = qkv.to(gpu), dout_there = dout.to(gpu);
  simulated::take();
  const Attended got = attention(qkv_there, there, shape);
  const simulated::Work forward = simulated::take();
  const at::Tensor gradient = attention_backward(dout_there, qkv_there, got, there, shape);
  const simulated::Work backward = simulated::take();
  EXPECT_EQ(forward.attention, 1);
  EXPECT_EQ(forward.launches(), 0) << "keys and values are not copied";
  EXPECT_EQ(backward.attention, 1);
  EXPECT_EQ(backward.launches(), 1) << "the gradients of q, k and v are put side by side";
  EXPECT_EQ(forward.copies + forward.stops + backward.copies + backward.stops, 0);

  // One rounding to bf16 of outputs, and of the output that the backward starts from.
  const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
    return (a.cpu().to(at::kFloat) - b).abs().div(b.abs() + 1).max().item<double>();
  };
  EXPECT_LT(apart(got.out, want.out), 0x1p-8);
  EXPECT_LT(apart(gradient, want_gradient), 0x1p-6);
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionByRows,
                         testing::Values(RowsCase{"full", 4, 0, {11, 11}},
                                         RowsCase{"one_token", 4, 0, {1}},
                                         RowsCase{"shared_heads", 2, 0, {3, 11, 11, 2, 7}},
                                         RowsCase{"one_head_for_all", 1, 0, {5, 1, 1}},
                                         RowsCase{"window", 2, 3, {3, 11, 2, 11, 7}},
                                         RowsCase{"window_of_one", 2, 1, {4, 4}},
                                         RowsCase{"window_beyond_the_rows", 2, 11, {11, 3}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace dsj::models::ops
