// Signs and scales: by hand, and the CPU's loops against libtorch's operations.
#include "engine/comm/signs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dsj::comm {
namespace {

at::Tensor bytes(std::int64_t n) {
  return at::empty({n}, at::kByte);
}

TEST(Signs, ByHand) {
  for (const Signs* signs : {&cpu_signs(), &aten_signs()}) {
    const at::Tensor x = at::tensor({1.f, -2.f, 0.f, -0.f, 3.f, -1.f, -1.f, 0.f});
    const at::Tensor bits = bytes(1), scale = at::empty({1});
    signs->compress(x, bits, scale);
    EXPECT_EQ(bits[0].item<int>(), 0b10111001) << "zero and -0 are plus; the first bit is highest";
    EXPECT_EQ(scale.item<float>(), std::sqrt(2.f)) << "sqrt(16/8)";
    const float s = scale.item<float>();
    EXPECT_TRUE(at::equal(x, at::tensor({1 - s, -2 + s, -s, -s, 3 - s, -1 + s, -1 + s, -s})));
    const at::Tensor out = at::empty({3});
    signs->read(out, bits, 3, scale);
    EXPECT_TRUE(at::equal(out, at::tensor({s, s, -s})));
    const at::Tensor sum = at::ones({8});
    signs->add(sum, bits, scale, 4);
    EXPECT_EQ(sum[0].item<float>(), 1 + s / 4);
    EXPECT_EQ(sum[1].item<float>(), 1 - s / 4);
  }
}

TEST(Signs, ANanIsPlusAndSpoilsTheScale) {
  for (const Signs* signs : {&cpu_signs(), &aten_signs()}) {
    const at::Tensor x = at::full({8}, -1.f), bits = bytes(1), scale = at::empty({1});
    x[2] = NAN;
    signs->compress(x, bits, scale);
    EXPECT_EQ(bits[0].item<int>(), 0b00100000);
    EXPECT_TRUE(std::isnan(scale.item<float>()));
  }
}

TEST(Signs, BothFormsAgreeOnRandomVectors) {
  at::manual_seed(5);
  for (const std::int64_t n : {8, 40, 4096, 100'000}) {
    const at::Tensor x = at::randn({n}), other = x.clone();
    const at::Tensor bits = bytes(n / 8), other_bits = bytes(n / 8);
    const at::Tensor scale = at::empty({1}), other_scale = at::empty({1});
    cpu_signs().compress(x, bits, scale);
    aten_signs().compress(other, other_bits, other_scale);
    EXPECT_TRUE(at::equal(bits, other_bits));
    // The squares are added in double, in another order.
    EXPECT_NEAR(scale.item<double>(), other_scale.item<double>(), 1.2e-7);
    EXPECT_LT((x - other).abs().max().item<double>(), 1e-6);
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, n - 3}) {
      const at::Tensor out = at::empty({3}), other_out = at::empty({3});
      cpu_signs().read(out, bits, std::min(first, n - 3), scale);
      aten_signs().read(other_out, bits, std::min(first, n - 3), scale);
      EXPECT_TRUE(at::equal(out, other_out));
    }
    for (const std::int64_t first : {0, 3, 5}) {  // a part of a byte at both ends, or at one
      const at::Tensor out = at::empty({n - first - 2}), other_out = at::empty_like(out);
      cpu_signs().read(out, bits, first, scale);
      aten_signs().read(other_out, bits, first, scale);
      EXPECT_TRUE(at::equal(out, other_out));
    }
    const at::Tensor sum = at::randn({n - 1}), other_sum = sum.clone();
    cpu_signs().add(sum, bits, scale, 3);
    aten_signs().add(other_sum, bits, scale, 3);
    EXPECT_LT((sum - other_sum).abs().max().item<double>(), 1e-6);
  }
}

}  // namespace
}  // namespace dsj::comm
