// Every instruction set's table against plain double-precision loops.
#include "engine/kernels/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <variant>
#include <vector>

namespace dsj::kernels {
namespace {

class KernelsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    table_ = table(GetParam());
    if (!table_) GTEST_SKIP() << "skipped: this processor has no " << GetParam();
  }
  std::vector<float> random(int64_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& value : values) value = std::normal_distribution<float>(0, scale)(engine_);
    return values;
  }
  /// The operation for all its rows or elements.
  template <typename Op>
  void run(const Op& op, int64_t n) {
    table_->run(op, 0, n);
  }
  const Table* table_ = nullptr;
  std::mt19937 engine_{5};
};

Rows rows_of(const std::vector<float>& x, int64_t rows) {
  const auto width = static_cast<int64_t>(x.size()) / rows;
  return {const_cast<float*>(x.data()), Type::F32, rows, width, width};
}

TEST_P(KernelsTest, AdamWFollowsTheFormula) {
  const int64_t n = 1003;
  for (const bool decoupled : {true, false}) {
    auto p = random(n), m = random(n, 0.1f), v = random(n, 0.1f), g = random(n);
    for (float& value : v) value = std::abs(value);
    std::vector<double> expected(n);
    const optim::AdamElement a{.decay = decoupled ? 0 : 0.1f,
                               .keep = decoupled ? 1 - 0.01f * 0.1f : 1,
                               .moments = {.rest1 = 0.1f, .beta2 = 0.95f, .rest2 = 0.05f},
                               .root = std::sqrt(0.0975f),
                               .step = 0.01f / 0.19f,
                               .eps = 1e-8f};
    for (int64_t i = 0; i < n; ++i) {
      double gradient = g[i] * 0.5, value = p[i];
      if (decoupled)
        value -= 0.01 * 0.1 * value;
      else
        gradient += 0.1 * value;
      const double m1 = 0.9 * m[i] + 0.1 * gradient, v1 = 0.95 * v[i] + 0.05 * gradient * gradient;
      expected[i] = value - 0.01 * (m1 / 0.19) / (std::sqrt(v1 / 0.0975) + 1e-8);
    }
    std::vector<Bf16> copy(n);
    float* states[] = {m.data(), v.data()};
    const optim::ElementRules::As<std::variant> rule = a;
    table_->update(rule.index(), &a, 0.5f,
                   {.n = n,
                    .p = p.data(),
                    .grad = g.data(),
                    .states = states,
                    .state_count = 2,
                    .low = copy.data(),
                    .low_type = Type::BF16});
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(p[i], expected[i], 2e-6 * std::max(1.0, std::abs(expected[i]))) << i;
      const uint32_t bits = static_cast<uint32_t>(copy[i].bits) << 16;
      float back;
      std::memcpy(&back, &bits, 4);
      ASSERT_NEAR(back, p[i], std::abs(p[i]) / 256.0 + 1e-30);
    }
  }
}

/// Ranks own stretches that begin anywhere, and an update computes a stretch step by step.
TEST_P(KernelsTest, AnUpdateGivesTheSameBitsHoweverItIsCut) {
  using Rule = optim::ElementRules::As<std::variant>;
  const optim::Moments moments{.rest1 = 0.1f, .beta2 = 0.95f, .rest2 = 0.05f};
  const optim::LambDirection direction{.eps = 1e-6f, .weight_decay = 0.1f, .inside = false};
  const Rule rules[] = {optim::AdamElement{0.1f, 1, moments, 0.3f, 0.05f, 1e-8f},
                        optim::SgdElement{0.1f, 0.01f},
                        optim::RMSpropElement<true, true>{0.1f, 0.01f, 0.9f, 0.1f, 1e-8f, 0.9f},
                        optim::LionElement{0.999f, 0.01f, 0.9f, 0.1f, 0.99f, 0.01f},
                        optim::LambElement{0.01, direction, 0.01f},
                        optim::RpropElement{0.01f, 0.5f, 1.2f, 1e-6f, 50, false}};
  const int64_t n = 1003, cuts[] = {0, 1, 7, 71, 135, 136, 333, 1003};
  const auto p = random(n), g = random(n), a = random(n), b = random(n), c = random(n);
  for (const Rule& rule : rules) {
    const auto run = [&](auto begins) {
      std::vector<float> all[] = {p, a, b, c};
      for (float& value : all[1]) value = 1 + std::abs(value);  // squares, above those of means
      for (float& value : all[2]) value = std::abs(value);
      for (float& value : all[3]) value *= 0.1f;
      std::vector<Half> low(n);
      for (size_t i = 0; i + 1 < begins.size(); ++i) {
        const int64_t first = begins[i];
        float* states[] = {all[1].data() + first, all[2].data() + first, all[3].data() + first};
        std::visit(
            [&](const auto& one) {
              table_->update(rule.index(), &one, 0.37f,
                             {.n = begins[i + 1] - first,
                              .p = all[0].data() + first,
                              .grad = g.data() + first,
                              .states = states,
                              .state_count = one.kStates,
                              .low = low.data() + first,
                              .low_type = Type::F16});
            },
            rule);
      }
      for (const Half& value : low) all[3].push_back(value.bits);
      std::vector<float> bits;
      for (const auto& values : all) bits.insert(bits.end(), values.begin(), values.end());
      return bits;
    };
    const auto whole = run(std::vector<int64_t>{0, n});
    const auto parts = run(std::vector<int64_t>(std::begin(cuts), std::end(cuts)));
    EXPECT_NE(whole, run(std::vector<int64_t>{0})) << "rule " << rule.index() << " does something";
    EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0)
        << "rule " << rule.index();
  }
}

/// Halves are converted by instructions where the processor has them: all gradients, and the copies of
/// values of every kind, as arithmetic on integers converts them.
TEST_P(KernelsTest, AnUpdateConvertsHalvesToTheSameBits) {
  const optim::ElementRules::As<std::variant> rule = optim::SgdElement{0, 1};
  const int64_t n = 1 << 16;
  const auto run = [&](const Table& table, const std::vector<Half>& grad, std::vector<float> p) {
    std::vector<Half> low(n);
    table.update(rule.index(), &std::get<optim::SgdElement>(rule), 1,
                 {.n = n,
                  .p = p.data(),
                  .grad = grad.data(),
                  .grad_type = Type::F16,
                  .low = low.data(),
                  .low_type = Type::F16});
    return low;
  };
  std::vector<Half> every(n), zero(n);
  std::vector<float> values(n);
  uint32_t bits = 1;
  for (int64_t i = 0; i < n; ++i) {
    every[i].bits = static_cast<uint16_t>(i);
    bits = bits * 1664525 + 1013904223;
    // Around the exponents of halves, every fourth half way between two of them; the last half any.
    const uint32_t near = (bits & 0x8fffffff) | 0x30000000, half_way = (near & ~0x1fffu) | 0x1000;
    values[i] = std::bit_cast<float>(i >= n / 2 ? bits : i % 4 ? near : half_way);
  }
  const Table& plain = *table("baseline");
  for (const auto& [grad, p] : {std::pair(every, std::vector<float>(n)), std::pair(zero, values)}) {
    const auto found = run(*table_, grad, p), expected = run(plain, grad, p);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(found[i].bits, expected[i].bits) << grad[i].bits << ", " << p[i];
  }
  const auto negated = run(*table_, every, std::vector<float>(n));
  for (int64_t i = 1; i <= 0x7c00; ++i) ASSERT_EQ(negated[i].bits, i | 0x8000);
  EXPECT_EQ(negated[0x7c01].bits & 0x7fff, 0x7e00) << "a NaN stays one";
}

/// The sums too, where the cuts are at multiples of 1024.
TEST_P(KernelsTest, LambsFirstPassSumsItsSquares) {
  const int64_t n = 3 * 1024 + 77;
  const optim::LambMoments rule{.moments = {.rest1 = 0.1f, .beta2 = 0.95f, .rest2 = 0.05f},
                                .direction = {.eps = 1e-6f, .weight_decay = 0.1f, .inside = false}};
  const auto p = random(n), g = random(n);
  auto m = random(n), v = random(n);
  for (float& value : v) value = std::abs(value);
  const auto run = [&](const std::vector<int64_t>& begins) {
    auto new_p = p, new_m = m, new_v = v;
    std::vector<double> sums(2);
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      float* states[] = {new_m.data() + begins[i], new_v.data() + begins[i]};
      table_->lamb_moments(rule, 0.5f,
                           {.n = begins[i + 1] - begins[i],
                            .p = new_p.data() + begins[i],
                            .grad = g.data() + begins[i],
                            .states = states,
                            .state_count = 2},
                           sums.data());
    }
    EXPECT_EQ(new_p, p) << "only read";
    return sums;
  };
  const auto sums = run({0, n});
  double of_p = 0, of_u = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double gradient = 0.5 * g[i];
    const double m1 = m[i] + 0.1 * (gradient - m[i]), v1 = 0.95 * v[i] + 0.05 * gradient * gradient;
    const double u = m1 / (std::sqrt(v1) + 1e-6) + 0.1 * p[i];
    of_p += double{p[i]} * p[i];
    of_u += u * u;
  }
  EXPECT_NEAR(sums[0], of_p, 1e-12 * of_p);
  EXPECT_NEAR(sums[1], of_u, 1e-5 * of_u);
  EXPECT_EQ(sums, run({0, 1024, 3072, n}));
}

/// The direction that the first pass leaves, in the gradient's place or elsewhere, is that which the second would compute.
TEST_P(KernelsTest, LambsSecondPassGoesAlongWhatTheFirstLeft) {
  const int64_t n = 1024 + 77;
  const optim::LambDirection direction{.eps = 1e-6f, .weight_decay = 0.1f, .inside = false};
  const optim::LambMoments moments{{.rest1 = 0.1f, .beta2 = 0.95f, .rest2 = 0.05f}, direction};
  const optim::LambElement second{0.01, direction, 0.02f};
  using Rule = optim::ElementRules::As<std::variant>;
  const size_t which = Rule(second).index();
  const auto p = random(n), g = random(n), m = random(n);
  auto v = random(n);
  for (float& value : v) value = std::abs(value);
  enum class Where { Nowhere, Elsewhere, InTheGradient };
  const auto run = [&](Where where, bool copies) {
    auto new_p = p, new_g = g, new_m = m, new_v = v;
    std::vector<float> left(n);
    std::vector<Bf16> low(n);
    std::vector<double> sums(2);
    float* states[] = {new_m.data(), new_v.data()};
    Span span{.n = n,
              .p = new_p.data(),
              .grad = new_g.data(),
              .states = states,
              .state_count = 2,
              .low = copies ? low.data() : nullptr};
    if (where == Where::Elsewhere) span.direction = left.data();
    if (where == Where::InTheGradient) span.direction = new_g.data();
    table_->lamb_moments(moments, 0.5f, span, sums.data());
    EXPECT_EQ(new_g == g, where != Where::InTheGradient) << "only read, unless it may go";
    if (span.direction) span.states = nullptr;  // neither moments nor gradient are needed
    table_->update(which, &second, 0.5f, span);
    std::vector<float> bits = new_p;
    for (const auto* more : {&new_m, &new_v}) bits.insert(bits.end(), more->begin(), more->end());
    for (const Bf16& value : low) bits.push_back(value.bits);
    for (const double sum : sums) bits.push_back(static_cast<float>(sum));
    return bits;
  };
  for (const bool copies : {false, true}) {
    const auto bits = run(Where::Nowhere, copies);
    EXPECT_EQ(run(Where::Elsewhere, copies), bits);
    EXPECT_EQ(run(Where::InTheGradient, copies), bits);
  }
}

TEST_P(KernelsTest, CrossEntropyLossAndGradient) {
  const int64_t rows = 3, width = 1037;
  auto logits = random(rows * width, 4);
  const auto original = logits;
  const std::vector<int64_t> labels{0, 1036, 500};
  double loss = 0;
  run(CrossEntropy{rows_of(logits, rows), labels, 0.25f, &loss}, rows);
  double expected = 0;
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += std::exp(double(original[row * width + i]));
    expected += std::log(sum) - original[row * width + labels[row]];
    for (int64_t i = 0; i < width; ++i) {
      const double p = std::exp(double(original[row * width + i])) / sum;
      ASSERT_NEAR(logits[row * width + i], 0.25 * (p - (i == labels[row])), 3e-7);
    }
  }
  EXPECT_NEAR(loss, expected, 1e-5);
}

TEST_P(KernelsTest, CrossEntropyShowsNaN) {
  std::vector<float> logits(64, 0.0f);
  logits[17] = NAN;
  const std::vector<int64_t> labels{3};
  double loss = 0;
  run(CrossEntropy{rows_of(logits, 1), labels, 1, &loss}, 1);
  EXPECT_TRUE(std::isnan(loss));
}

TEST_P(KernelsTest, SwigluGradientIsTheDerivative) {
  const int64_t width = 37;
  const auto gate_up = random(2 * width, 2);
  const auto da = random(width);
  auto gradient = gate_up;
  run(SwigluBackward{rows_of(da, 1), rows_of(gradient, 1)}, 1);
  std::vector<float> a(width);
  run(Swiglu{rows_of(gate_up, 1), rows_of(a, 1)}, 1);
  for (int64_t i = 0; i < width; ++i) {
    const double g = gate_up[i], u = gate_up[width + i], s = 1 / (1 + std::exp(-g));
    EXPECT_NEAR(a[i], g * s * u, 1e-5);
    EXPECT_NEAR(gradient[i], da[i] * u * s * (1 + g * (1 - s)), 1e-5);
    EXPECT_NEAR(gradient[width + i], da[i] * g * s, 1e-5);
  }
}

TEST_P(KernelsTest, RmsNormGradientIsTheDerivative) {
  const int64_t rows = 2, width = 40;
  const auto x = random(rows * width), w = random(width), dy = random(rows * width);
  std::vector<float> y(rows * width), rstd(rows), dx(rows * width, 0.5f), dw(width, 0.0f);
  run(RmsNorm{rows_of(x, rows), rows_of(w, 1), rows_of(y, rows), rstd, 1e-6f}, rows);
  run(RmsNormBackward{rows_of(dy, rows), rows_of(x, rows), rows_of(w, 1), rstd, rows_of(dx, rows),
                      rows_of(dw, 1)},
      rows);
  auto loss = [&](int64_t index, double shift) {
    double total = 0;
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      auto at = [&](int64_t i) {
        return x[row * width + i] + (row * width + i == index ? shift : 0);
      };
      for (int64_t i = 0; i < width; ++i) sum += at(i) * at(i);
      const double scale = 1 / std::sqrt(sum / width + 1e-6);
      for (int64_t i = 0; i < width; ++i) total += dy[row * width + i] * w[i] * at(i) * scale;
    }
    return total;
  };
  for (int64_t i = 0; i < rows * width; ++i) {
    EXPECT_NEAR(dx[i] - 0.5, (loss(i, 1e-4) - loss(i, -1e-4)) / 2e-4, 1e-4);
  }
  for (int64_t i = 0; i < width; ++i) {
    const double expected = dy[i] * x[i] * rstd[0] + dy[width + i] * x[width + i] * rstd[1];
    EXPECT_NEAR(dw[i], expected, 1e-5);
  }
}

TEST_P(KernelsTest, RopeTurnsBackWithItsGradient) {
  const int64_t seq = 5, heads = 3, dim = 8;
  std::vector<float> cosine(seq * dim / 2), sine(seq * dim / 2);
  for (size_t i = 0; i < cosine.size(); ++i)
    cosine[i] = std::cos(0.3f * i), sine[i] = std::sin(0.3f * i);
  const auto x = random(2 * seq * heads * dim);
  const std::vector<int64_t> positions = {0, 1, 2, 3, 4, 2, 1, 0, 4, 4};
  auto y = x;
  Rope rope{rows_of(y, 2 * seq), cosine, sine, positions, heads, dim, 1};
  run(rope, 2 * seq);
  EXPECT_NEAR(y[heads * dim], x[heads * dim] * cosine[4] - x[heads * dim + 4] * sine[4], 1e-6);
  rope.sign = -1;
  run(rope, 2 * seq);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-5);
}

TEST_P(KernelsTest, AddRowsAddsTheNamedRows) {
  const int64_t width = 600, stride = 603;
  const auto x = random(4 * stride);
  std::vector<float> out(width, 0.5f);
  const std::vector<int64_t> rows = {3, 0, 3};
  run(AddRows{rows_of(x, 4), rows, rows_of(out, 1)}, width);
  for (int64_t i = 0; i < width; ++i)
    EXPECT_EQ(out[i], 0.5f + x[3 * stride + i] + x[i] + x[3 * stride + i]) << i;
}

TEST_P(KernelsTest, SumOfSquaresDoesNotDependOnTheSplit) {
  const auto x = random(3 * 4096 + 77);
  const auto n = static_cast<int64_t>(x.size());
  double whole = 0, parts = 0;
  run(SumOfSquares{rows_of(x, 1), &whole}, n);
  for (const auto& [begin, end] : {std::pair{0L, 4096L}, {4096L, 8192L}, {8192L, n}})
    table_->run(SumOfSquares{rows_of(x, 1), &parts}, begin, end);
  EXPECT_NEAR(whole, parts, 1e-12 * whole);
  double expected = 0;
  for (const float value : x) expected += double(value) * value;
  EXPECT_NEAR(whole, expected, 1e-5 * expected);
}

INSTANTIATE_TEST_SUITE_P(Isa, KernelsTest, testing::Values("avx512", "avx2", "baseline"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace dsj::kernels
