#include "engine/zero/methods/tiles.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace dsj::zero {
namespace {

using Parts = std::vector<std::pair<int64_t, int64_t>>;

Parts parts_of(at::Device device, int64_t n) {
  Parts parts;
  for_tiles(device, n, [&](int64_t first, int64_t count) { parts.emplace_back(first, count); });
  return parts;
}

TEST(Tiles, CoverEveryElementOnce) {
  EXPECT_EQ(parts_of(at::kCPU, 0), Parts{});
  EXPECT_EQ(parts_of(at::kCPU, 5), (Parts{{0, 5}}));
  EXPECT_EQ(parts_of(at::kCPU, kTile), (Parts{{0, kTile}}));
  EXPECT_EQ(parts_of(at::kCPU, 2 * kTile + 1), (Parts{{0, kTile}, {kTile, kTile}, {2 * kTile, 1}}));
}

TEST(Tiles, AnotherDeviceTakesAllAtOnce) {
  EXPECT_EQ(parts_of(at::kMeta, 3 * kTile), (Parts{{0, 3 * kTile}}));
  EXPECT_EQ(parts_of(at::kMeta, 0), Parts{});
}

TEST(Tiles, APartOfASpanIsViews) {
  const std::vector<at::Tensor> states{at::arange(6.f), at::arange(6.f)};
  const UpdateSpan whole{at::arange(6.f), {}, states};
  const SpanPart part(whole, 2, 3);
  part.span().p.zero_();
  part.span().states[1].fill_(9);
  EXPECT_TRUE(at::equal(whole.p, at::tensor({0.f, 1.f, 0.f, 0.f, 0.f, 5.f})));
  EXPECT_TRUE(at::equal(states[1], at::tensor({0.f, 1.f, 9.f, 9.f, 9.f, 5.f})));
  EXPECT_EQ(part.span().states.size(), 2u);
  EXPECT_FALSE(part.span().grad.defined() || part.span().low.defined());
}

}  // namespace
}  // namespace dsj::zero
