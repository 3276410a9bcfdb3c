#include "engine/zero/piece_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace dsj::zero {
namespace {

TEST(PieceSums, SixteenBitsLoseNothingOfSmallPieces) {
  const at::Tensor grad = at::full({3, 5}, 256.0, at::kBFloat16);
  PieceSums sums;
  for (int piece = 0; piece < 512; ++piece) {
    GradView view = sums.of(4, 1, {grad, /*accumulate=*/piece > 0});
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
    sums.of(0, 2, {grad, true}).tensor.fill_(0.25);
    sums.add();
  }
  EXPECT_EQ(grad[0].item<float>(), 101.0f);
}

TEST(PieceSums, AParameterThatIsUsedTwiceInAPieceAddsUp) {
  const at::Tensor grad = at::zeros({2}, at::kBFloat16);
  PieceSums sums;
  EXPECT_FALSE(sums.of(0, 1, {grad, false}).accumulate);
  EXPECT_TRUE(sums.of(0, 1, {grad, true}).accumulate);
}

TEST(PieceSums, Fp32AndFrozenOnesAreTheUnitsOwn) {
  const at::Tensor grad = at::zeros({2});
  PieceSums sums;
  const GradView view = sums.of(0, 1, {grad, true});
  EXPECT_TRUE(view.tensor.is_same(grad));
  EXPECT_TRUE(view.accumulate);
  EXPECT_FALSE(sums.of(1, 1, {}).tensor.defined());
  sums.add();
  EXPECT_EQ(grad.sum().item<float>(), 0.0f);
}

}  // namespace
}  // namespace dsj::zero
