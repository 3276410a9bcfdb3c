// Products against fp64, in every type, as a CPU without 16-bit units runs fp16's on every machine:
// values, what is added to, and how much scratch a product takes.
#include "engine/models/ops/gemm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/device/device.h"
#include "engine/device/products.h"
#include "engine/kernels/products.h"
#include "engine/memory/counting_allocator.h"

namespace dsj::models::gemm {
namespace {

class Gemm : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(2); }
  static at::Tensor random(at::IntArrayRef shape) { return at::randn(shape).to(GetParam()); }
  /// `want`: a [.., k] times b [k, ..] and what is added. In 16 bits two roundings of a sum of about
  /// `size`. In fp32 the order of the sum, which each library chooses, decides the last bits:
  /// sqrt(n) u times the terms' magnitudes for a sum of n terms (Higham and Mary 2019, with a factor
  /// of 4), and two roundings of the result.
  static void expect_close(const at::Tensor& got, const at::Tensor& want, double size,
                           const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor error = (got.to(at::kDouble) - want).abs();
    if (GetParam() != at::kFloat) {
      const double step = GetParam() == at::kHalf ? 0x1p-10 : 0x1p-7;
      EXPECT_LT(error.max().item<double>(), step * size);
      return;
    }
    const double roundings = 4 * std::sqrt(static_cast<double>(b.size(0) + 1)) * 0x1p-24;
    const at::Tensor added = (want - wide(a).mm(wide(b))).abs();
    const at::Tensor terms = wide(a).abs().mm(wide(b).abs()) + added;
    const at::Tensor bound = roundings * terms + 0x1p-23 * want.abs();
    EXPECT_LT((error / bound).max().item<double>(), 1);
  }
  static at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }
};

/// More outputs than one tile of a widened weight has.
constexpr int64_t kRows = 7, kIn = 700, kOut = 1501;

TEST_P(Gemm, EveryProduct) {
  const at::Tensor x = random({kRows, kIn}), w = random({kOut, kIn}), dy = random({kRows, kOut});
  const at::Tensor bias = random({kOut}), residual = random({kRows, kOut});
  const at::Tensor y = wide(x).mm(wide(w).t());
  at::Tensor out = at::empty({kRows, kOut}, x.options());
  linear(out, x, w);
  expect_close(out, y, 128, x, w.t());
  linear(out, x, w.t().contiguous().t(), bias);
  expect_close(out, y + wide(bias), 128, x, w.t());
  expect_close(linear_add(residual, x, w), y + wide(residual), 128, x, w.t());
  for (const bool accumulate : {false, true}) {
    const double kept = accumulate ? 1 : 0;
    const at::Tensor dx = random({kRows, kIn}), dw = random({kOut, kIn});
    const at::Tensor want_dx = wide(dy).mm(wide(w)) + kept * wide(dx);
    const at::Tensor want_dw = wide(dy).t().mm(wide(x)) + kept * wide(dw);
    grad_input(dx, dy, w, accumulate);
    grad_weight({dw, accumulate}, dy, x);
    expect_close(dx, want_dx, 256, dy, w);
    expect_close(dw, want_dw, 32, dy.t(), x);
  }
}

/// torch_autocast: a wider weight is rounded for the product, its gradient stays wide, and so does a
/// sum with a wider tensor. Whoever multiplies.
TEST_P(Gemm, WiderWeights) {
  const at::Tensor x = random({kRows, kIn}), dy = random({kRows, kOut});
  const at::Tensor w = at::randn({kOut, kIn}), bias = at::randn({kOut});
  const at::Tensor residual = at::randn({kRows, kOut});
  const at::Tensor w16 = w.to(GetParam()), bias16 = bias.to(GetParam());
  at::Tensor out = at::empty({kRows, kOut}, x.options()), same = at::empty_like(out);
  linear(out, x, w, bias);
  linear(same, x, w16, bias16);
  EXPECT_TRUE(out.equal(same));
  at::Tensor dx = at::empty_like(x), same_dx = at::empty_like(x);
  grad_input(dx, dy, w, false);
  grad_input(same_dx, dy, w16, false);
  EXPECT_TRUE(dx.equal(same_dx));
  const at::Tensor sum = linear_add(residual, x, w);
  EXPECT_EQ(sum.scalar_type(), at::kFloat);
  expect_close(sum, wide(x).mm(wide(w16).t()) + wide(residual), 128, x, w16.t());
  for (const bool accumulate : {false, true}) {
    const at::Tensor dw = at::randn({kOut, kIn}), db = at::randn({kOut});
    const double kept = accumulate ? 1 : 0;
    const at::Tensor want = wide(dy).t().mm(wide(x)) + kept * wide(dw);
    const at::Tensor want_db = wide(dy).sum(0) + kept * wide(db);
    grad_weight({dw, accumulate}, dy, x);
    grad_bias({db, accumulate}, dy);
    expect_close(dw, want, 32, dy.t(), x);
    const double rounding = GetParam() == at::kHalf ? 0x1p-8 : 1e-4;  // of a sum below 8
    EXPECT_LT((wide(db) - want_db).abs().max().item<double>(), rounding) << "summed in fp32";
  }
}

/// torch_autocast in fp16: an fp32 gradient's product and a bias' sum are rounded to fp16 once, and
/// overflow there, before they are added. bf16 has fp32's range, and is not rounded.
TEST_P(Gemm, AnFp16GradientPassesThroughFp16) {
  const bool half = GetParam() == at::kHalf;
  const int64_t o = 600, i = 700;  // more than one tile
  const auto gradient = [&](double dy, double x, bool accumulate) {
    const at::Tensor dw = at::ones({o, i}), db = at::ones({o});
    const at::Tensor left = at::full({2, o}, dy).to(GetParam());
    grad_weight({dw, accumulate}, left, at::full({2, i}, x).to(GetParam()));
    grad_bias({db, accumulate}, left.mul(x));
    const at::Tensor all = at::cat({dw.flatten(), db});
    EXPECT_TRUE(all.eq(all[0]).all().item<bool>());
    return all[0].item<double>();
  };
  for (const double kept : {0.0, 1.0}) {
    EXPECT_EQ(gradient(128, 255, kept != 0), 65280 + kept) << "fp16's largest is 65504";
    const double most = gradient(128, 256, kept != 0);
    EXPECT_EQ(most, half ? INFINITY : 65536 + kept);
  }
  const at::Tensor dw = at::ones({1, 1}), x = at::ones({2049, 1}).to(GetParam());
  grad_weight({dw, true}, x, x);
  EXPECT_TRUE(!half || dw.item<double>() == 2049) << dw << " is 1 and 2049's fp16 number";
  const at::Tensor db = at::ones({1});
  grad_bias({db, true}, x);
  EXPECT_EQ(db.item<double>(), half ? 2049 : 2050);
}

/// The same where the head's rows come in pieces: their sum is rounded, not each of them.
TEST_P(Gemm, SumsOfFp16ProductsPassThroughFp16Once) {
  const bool half = GetParam() == at::kHalf;
  const auto sum = [](std::initializer_list<double> products, bool accumulate) {
    const at::Tensor dw = at::ones({2, 3});
    WeightSum sum({dw, accumulate}, GetParam(), static_cast<int64_t>(products.size()));
    for (const double product : products)
      sum.add(at::full({1, 2}, product).to(GetParam()), at::ones({1, 3}).to(GetParam()));
    EXPECT_TRUE(dw.eq(dw[0][0]).all().item<bool>());
    return dw[0][0].item<double>();
  };
  for (const bool accumulate : {false, true}) {
    const double kept = accumulate ? 1 : 0;
    EXPECT_EQ(sum({32640, 32640}, accumulate), 65280 + kept);
    EXPECT_EQ(sum({32640, 32640, 256}, accumulate), half ? INFINITY : 65536 + kept);
    EXPECT_EQ(sum({65280, 256, -256}, accumulate), 65280 + kept) << "only the sum counts";
    EXPECT_EQ(sum({2048, 1, 1}, accumulate), 2050 + kept) << "rounded once";
    EXPECT_EQ(sum({2048, 1}, accumulate), (half ? 2048 : 2049) + kept);
  }
}

/// A part of a gradient is not rounded, nor does it overflow: the sum of the parts does.
TEST_P(Gemm, PartsOfAnFp16GradientAreNotRounded) {
  const at::Tensor dw = at::ones({600, 700}), db = at::ones({600});
  const at::Tensor left = at::full({2, 600}, 256.0).to(GetParam());
  for (const bool accumulate : {false, true}) {
    grad_weight({dw, accumulate, /*part=*/true}, left, at::full({2, 700}, 128.0).to(GetParam()));
    grad_bias({db, accumulate, /*part=*/true}, left.mul(128));
  }
  EXPECT_TRUE(dw.eq(2 * 65536).all().item<bool>());
  EXPECT_TRUE(db.eq(2 * 65536).all().item<bool>());
}

TEST_P(Gemm, NoProductCopiesAWholeWeight) {
  memory::install();
  const at::Tensor x = random({kRows, 1024}), w = random({8192, 1024}), dy = random({kRows, 8192});
  at::Tensor out = at::empty_like(dy), dx = at::empty_like(x), dw = at::empty_like(w);
  memory::Ledger ledger;
  {
    const memory::MemoryScope scope(memory::Class::Activations, ledger);
    linear(out, x, w);
    grad_input(dx, dy, w, false);
    grad_weight({dw, false}, dy, x);
    grad_weight({dw, true}, dy, x);
  }
  EXPECT_LT(ledger.peak(), w.numel() * int64_t{sizeof(float)} / 4);
}

TEST_P(Gemm, ManyProductsAddUpWithoutLosingSmallOnes) {
  // Each product is 2^-9 of the sum that it is added to at the end.
  const int64_t products = 512;
  const at::Tensor dy = at::ones({1, 40}).to(GetParam()), x = random({1, 24});
  const at::Tensor dw = at::empty({40, 24}, x.options());
  WeightSum sum({dw, /*accumulate=*/false}, GetParam(), products);
  for (int64_t i = 0; i < products; ++i) sum.add(dy, x);
  const at::Tensor want = wide(x).expand({40, 24}) * static_cast<double>(products);
  EXPECT_LT(((wide(dw) - want).abs() / want.abs()).max().item<double>(), 0x1p-8);
}

TEST_P(Gemm, LargeProductsToo) {  // where libtorch multiplies, if it has units
  const int64_t rows = 400, in = 600, out = 600;
  const at::Tensor x = random({rows, in}), w = random({out, in}), dy = random({rows, out});
  at::Tensor y = at::empty_like(dy), dx = at::empty_like(x), dw = at::empty_like(w);
  linear(y, x, w);
  grad_input(dx, dy, w, false);
  grad_weight({dw, false}, dy, x);
  expect_close(y, wide(x).mm(wide(w).t()), 256, x, w.t());
  expect_close(dx, wide(dy).mm(wide(w)), 256, dy, w);
  expect_close(dw, wide(dy).t().mm(wide(x)), 256, dy.t(), x);
}

TEST(Products, TheShapeDecides) {
  using device::Products;
  const auto own = [](at::ScalarType type, int64_t n, Products asked) {
    return device::multiplies_itself(at::empty({0}, type), 256, 256, n, asked);
  };
  EXPECT_EQ(own(at::kFloat, 8, Products::ByShape), kernels::product_table().fused);
  EXPECT_TRUE(own(at::kFloat, 8, Products::Own));
  EXPECT_FALSE(own(at::kFloat, 8, Products::Library));
  EXPECT_FALSE(own(at::kDouble, 8, Products::Own));
  EXPECT_TRUE(own(at::kHalf, 1 << 20, Products::Library)) << "no CPU has units for it";
  EXPECT_TRUE(own(at::kBFloat16, 8, Products::ByShape));
  const bool units = device::of(at::kCPU).multiplies(at::kBFloat16);
  EXPECT_EQ(own(at::kBFloat16, 2048, Products::ByShape), !units);
  EXPECT_EQ(own(at::kBFloat16, 8, Products::Library), !units);
  EXPECT_TRUE(own(at::kBFloat16, 2048, Products::Own));
}

TEST(Products, WhatTheEnvironmentAsksFor) {
  using device::Products, device::products_asked;
  EXPECT_EQ(products_asked(nullptr, nullptr), Products::ByShape);
  EXPECT_EQ(products_asked("own", nullptr), Products::Own);
  EXPECT_EQ(products_asked("library", "AVX2"), Products::Library);
  EXPECT_EQ(products_asked(nullptr, "AVX2"), Products::Own) << "oneDNN has no bf16 kernels there";
  EXPECT_EQ(products_asked(nullptr, "AVX512_CORE_AMX"), Products::ByShape);
}

TEST(Products, ASumOfNothingIsZeroOrWhatWasThere) {
  const at::Tensor x = at::empty({0, 3}).to(at::kBFloat16),
                   dy = at::empty({0, 2}).to(at::kBFloat16);
  const at::Tensor dw = at::ones({2, 3}).to(at::kBFloat16);
  grad_weight({dw, true}, dy, x);
  EXPECT_TRUE(dw.eq(1).all().item<bool>());
  grad_weight({dw, false}, dy, x);
  EXPECT_TRUE(dw.eq(0).all().item<bool>());
}

INSTANTIATE_TEST_SUITE_P(Types, Gemm, testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

}  // namespace
}  // namespace dsj::models::gemm
