#include "engine/zero/flat/piece_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dsj::zero {
namespace {

TEST(PieceSums, SixteenBitsLoseNothingOfSmallPieces) {
  const at::Tensor grad = at::full({3, 5}, 256.0, at::kBFloat16);
  PieceSums sums;
  for (int piece = 0; piece < 512; ++piece) {
    GradView view = sums.of(4, 1, {grad, /*accumulate=*/piece > 0}, at::kBFloat16);
    EXPECT_FALSE(view.accumulate) << "a piece writes its own part";
    view.tensor.fill_(0.5);  // 256 + 0.5 is 256 in bf16
    sums.add();
  }
  EXPECT_EQ(grad.min().item<float>(), 256.0f)
      << "512 halves; what was there before was no gradient";
  EXPECT_EQ(grad.max().item<float>(), 256.0f);
}

TEST(PieceSums, AddToWhatIsThere) {
  const at::Tensor grad = at::full({2}, 100.0, at::kBFloat16);
  PieceSums sums;
  for (int piece = 0; piece < 4; ++piece) {
    sums.of(0, 2, {grad, true}, at::kBFloat16).tensor.fill_(0.25);
    sums.add();
  }
  EXPECT_EQ(grad[0].item<float>(), 101.0f);
}

TEST(PieceSums, AParameterThatIsUsedTwiceInAPieceAddsUp) {
  const at::Tensor grad = at::zeros({2}, at::kBFloat16);
  PieceSums sums;
  EXPECT_FALSE(sums.of(0, 1, {grad, false}, at::kBFloat16).accumulate);
  EXPECT_TRUE(sums.of(0, 1, {grad, true}, at::kBFloat16).accumulate);
}

TEST(PieceSums, Fp32AndFrozenOnesAreTheUnitsOwn) {
  const at::Tensor grad = at::zeros({2});
  PieceSums sums;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const GradView view = sums.of(0, 1, {grad, true}, type);
    EXPECT_TRUE(view.tensor.is_same(grad));
    EXPECT_TRUE(view.accumulate);
    EXPECT_FALSE(view.part);
  }
  EXPECT_FALSE(sums.of(1, 1, {}, at::kHalf).tensor.defined());
  sums.add();
  sums.finish();
  EXPECT_EQ(grad.sum().item<float>(), 0.0f);
}

/// An fp32 gradient of fp16 products: 2049 is no fp16 number, 70000 is beyond all of them.
TEST(PieceSums, WhatPassesThroughFp16IsRoundedOnce) {
  for (const bool accumulate : {false, true}) {
    const at::Tensor grad = at::full({3}, 1.0);
    PieceSums sums;
    for (const auto& piece :
         {at::tensor({2048.0f, 40000.0f, 70000.0f}), at::tensor({1.0f, 30000.0f, -20016.0f}),
          at::tensor({1.0f, 1.0f, 0.0f})}) {
      const GradView view = sums.of(2, 1, {grad, accumulate}, at::kHalf);
      EXPECT_TRUE(view.part);
      view.accumulate ? view.tensor.add_(piece) : view.tensor.copy_(piece);
      sums.add();
    }
    sums.finish();
    const float kept = accumulate ? 1 : 0;
    EXPECT_EQ(grad[0].item<float>(), 2050 + kept) << "each piece's sum with 2048 is rounded away";
    EXPECT_EQ(grad[1].item<float>(), INFINITY) << "none of the pieces overflows";
    EXPECT_EQ(grad[2].item<float>(), 49984 + kept) << "one of the pieces does";
  }
}

}  // namespace
}  // namespace dsj::zero
