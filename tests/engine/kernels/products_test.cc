// Products of every instruction set against double precision: each layout of the operands, edges of
// blocks, panels and tiles, odd depths, bias, sums with what is there, and any number of threads.
#include "engine/kernels/products.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/element.h"
#include "engine/kernels/kernels.h"

namespace dsj::kernels {
namespace {

class ProductsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    table_ = product_table(GetParam());
    if (!table_) GTEST_SKIP() << "skipped: this processor has no " << GetParam();
  }
  template <typename T>
  std::vector<T> random(int64_t n) {
    std::vector<T> values(n);
    for (int64_t i = 0; i < n; ++i)
      store(values.data(), i, std::normal_distribution<float>()(engine_));
    return values;
  }
  void run(const Product& p, int64_t threads = 1) {
    const Blocks blocks = table_->blocks(p, threads);
    for (int64_t i = 0; i < blocks.count(); ++i) table_->block(p, blocks, i);
  }

  enum class Addend { None, Out, Another };
  struct Case {
    int64_t m, n, k;
    bool a_along, b_across;  ///< neighbours in a row are adjacent
    bool bias = false;
    Addend addend = Addend::None;
    int64_t threads = 1;
  };
  /// One product of T into Out. The bound is of a sum in fp32 in any order (Higham and Mary 2019,
  /// with a factor of 4), and one rounding of the result.
  template <typename T, typename Out>
  void expect_product(const Case& c, Type type, Type out_type, double unit) {
    const auto a = random<T>(c.m * c.k), b = random<T>(c.k * c.n), bias = random<T>(c.n);
    const int64_t out_row = c.n + 3, addend_row = c.n + 1;
    auto out = random<Out>(c.m * out_row);
    const auto before = out, addend = random<Out>(c.m * addend_row);
    const auto strides = [](bool along, int64_t rows, int64_t columns) {
      return along ? std::pair{columns, int64_t{1}} : std::pair{int64_t{1}, rows};
    };
    const auto [ar, ac] = strides(c.a_along, c.m, c.k);
    const auto [br, bc] = strides(c.b_across, c.k, c.n);
    run({.m = c.m,
         .n = c.n,
         .k = c.k,
         .type = type,
         .a = {a.data(), ar, ac},
         .b = {b.data(), br, bc},
         .bias = c.bias ? bias.data() : nullptr,
         .out = out.data(),
         .out_row = out_row,
         .out_type = out_type,
         .addend = c.addend == Addend::Out       ? out.data()
                   : c.addend == Addend::Another ? addend.data()
                                                 : nullptr,
         .addend_row = c.addend == Addend::Out ? out_row : addend_row},
        c.threads);
    for (int64_t r = 0; r < c.m; ++r) {
      for (int64_t i = 0; i < out_row; ++i) {
        const int64_t at = r * out_row + i;
        if (i >= c.n) {
          ASSERT_EQ(load(out.data(), at), load(before.data(), at)) << "beside the result";
          continue;
        }
        double want = 0, terms = 0;
        const auto add = [&](double x) { want += x, terms += std::abs(x); };
        for (int64_t k = 0; k < c.k; ++k)
          add(double{load(a.data(), r * ar + k * ac)} * load(b.data(), k * br + i * bc));
        if (c.bias) add(load(bias.data(), i));
        if (c.addend == Addend::Out) add(load(before.data(), at));
        if (c.addend == Addend::Another) add(load(addend.data(), r * addend_row + i));
        const double bound =
            4 * std::sqrt(double(c.k + 2)) * 0x1p-24 * terms + unit * std::abs(want) + 0x1p-24;
        ASSERT_NEAR(load(out.data(), at), want, bound)
            << c.m << " x " << c.n << " x " << c.k << " at " << r << ", " << i;
      }
    }
  }
  const ProductTable* table_ = nullptr;
  std::mt19937 engine_{7};
};

TEST_P(ProductsTest, EveryLayoutAndEdge) {
  const std::vector<Case> cases = {
      {1, 1, 1, true, true},
      {3, 5, 7, true, false, true},
      {8, 48, 64, false, true, false, Addend::Out},
      {241, 50, 33, true, false, false, Addend::Another},
      {9, 193, 515, false, true, true, Addend::Out},  // a second stretch of k, odd
      {13, 200, 1030, true, true, true, Addend::Another},
      {16, 96, 530, true, false, false, Addend::Another, 2},
      {250, 33, 5, false, false, true},
      {385, 50, 40, false, false, true, Addend::None, 3},
      {5, 3080, 20, true, false, false, Addend::Out, 1},
      {40, 500, 300, true, true, false, Addend::None, 16},
  };
  for (const Case& c : cases) {
    expect_product<float, float>(c, Type::F32, Type::F32, 0x1p-24);
    expect_product<Bf16, Bf16>(c, Type::BF16, Type::BF16, 0x1p-8);
    expect_product<Bf16, float>(c, Type::BF16, Type::F32, 0x1p-24);
    expect_product<Half, Half>(c, Type::F16, Type::F16, 0x1p-11);
    expect_product<Half, float>(c, Type::F16, Type::F32, 0x1p-24);
  }
}

TEST_P(ProductsTest, ARowsSumDependsOnNeitherTheRowsBesideItNorThreads) {
  const int64_t m = 245, n = 210, k = 700;
  const auto same = [&](auto element, Type type, Type out_type) {
    using T = decltype(element);
    const auto a = random<T>(m * k), b = random<T>(n * k);
    const auto product = [&](int64_t row, int64_t rows, int64_t threads) {
      std::vector<float> out(rows * n);
      run({.m = rows,
           .n = n,
           .k = k,
           .type = type,
           .a = {a.data() + row * k, k, 1},
           .b = {b.data(), 1, k},
           .out = out.data(),
           .out_row = n,
           .out_type = out_type},
          threads);
      return out;
    };
    const std::vector<float> all = product(0, m, 1);
    for (const int64_t threads : {2, 3, 7, 64}) ASSERT_EQ(product(0, m, threads), all) << threads;
    for (const int64_t row : {int64_t{0}, int64_t{130}, m - 1}) {
      const std::vector<float> one = product(row, 1, 1);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(one[i], all[row * n + i]) << row << ", " << i;
    }
  };
  same(Bf16{}, Type::BF16, Type::F32);
  same(float{}, Type::F32, Type::F32);
}

TEST_P(ProductsTest, EveryThreadHasAsMuch) {
  for (const int64_t threads : {1, 2, 6, 16, 64}) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{384, 4096}, {4096, 384}, {512, 8192}}) {
      const Product p{.m = m, .n = n, .k = 384, .type = Type::F32, .out_type = Type::F32};
      const Blocks blocks = table_->blocks(p, threads);
      EXPECT_EQ(blocks.down, (m + blocks.rows - 1) / blocks.rows);
      EXPECT_EQ(blocks.across, (n + blocks.columns - 1) / blocks.columns);
      const int64_t each = (blocks.count() + threads - 1) / threads * blocks.rows * blocks.columns;
      EXPECT_LE(static_cast<double>(each * threads), 1.3 * static_cast<double>(m * n))
          << m << " x " << n << " on " << threads;
    }
  }
  const Blocks none = table_->blocks({.m = 0, .n = 5, .k = 3, .type = Type::F32}, 4);
  EXPECT_EQ(none.count(), 0);
}

/// The order of a sum is no matter of vectors.
TEST(Products, OfFp32HaveTheSameBitsOnEveryProcessorThatFuses) {
  const int64_t m = 50, n = 70, k = 600;
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  std::vector<float> a(m * k), b(n * k), bias(n), want;
  for (std::vector<float>* values : {&a, &b, &bias})
    for (float& value : *values) value = normal(engine);
  for (const char* isa : {"avx512bf16", "avx512", "avx2"}) {
    const ProductTable* const table = product_table(isa);
    if (!table) continue;
    ASSERT_TRUE(table->fused);
    std::vector<float> out(m * n);
    const Product p{.m = m,
                    .n = n,
                    .k = k,
                    .type = Type::F32,
                    .a = {a.data(), k, 1},
                    .b = {b.data(), 1, k},
                    .bias = bias.data(),
                    .out = out.data(),
                    .out_row = n,
                    .out_type = Type::F32};
    const Blocks blocks = table->blocks(p, 1);
    for (int64_t i = 0; i < blocks.count(); ++i) table->block(p, blocks, i);
    if (want.empty()) want = out;
    EXPECT_EQ(out, want) << isa;
  }
  EXPECT_FALSE(product_table("baseline")->fused) << "it is compiled for any x86-64";
}

TEST_P(ProductsTest, NotANumberStays) {
  const auto b = random<Bf16>(20);
  std::vector<Bf16> a(20, Bf16{0x3f80}), out(1);
  a[19] = Bf16{0x7fc0};
  run({.m = 1,
       .n = 1,
       .k = 20,
       .a = {a.data(), 20, 1},
       .b = {b.data(), 1, 20},
       .out = out.data(),
       .out_row = 1});
  EXPECT_TRUE(std::isnan(load(out.data(), 0)));
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, ProductsTest,
                         testing::Values("avx512bf16", "avx512", "avx2", "baseline"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ProductTable, FollowsTheKernelsTable) {
  const std::string isa = product_table().isa;
  EXPECT_TRUE(product_table().pairs ? isa == "avx512bf16" : isa == table().isa) << isa;
}

}  // namespace
}  // namespace dsj::kernels
