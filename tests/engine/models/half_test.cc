// The kernels' fp16 conversions are ATen's, value by value, on every instruction set. They are seen
// through an update that changes nothing: its first moment is the widened gradient, its 16-bit copy
// the rounded parameter.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <variant>
#include <vector>

#include "engine/kernels/kernels.h"

namespace dsj::kernels {
namespace {

class HalfConversion : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    table_ = table(GetParam());
    if (!table_) GTEST_SKIP() << "skipped: this processor has no " << GetParam();
  }
  /// What the kernels make of a gradient (first moment), and of a parameter (copy).
  void convert(const std::vector<Half>& gradient, std::vector<float>& parameter,
               std::vector<float>& widened, std::vector<Half>& rounded) const {
    const size_t n = gradient.size();
    std::vector<float> second(n);
    widened.assign(n, 0.0f);
    rounded.resize(n);
    const optim::AdamElement rule{.keep = 1,
                                  .moments = {.rest1 = 1, .beta2 = 1, .rest2 = 0},
                                  .root = 1,
                                  .step = 0,
                                  .eps = 1e-8f};
    const optim::ElementRules::As<std::variant> which = rule;
    float* states[] = {widened.data(), second.data()};
    table_->update(which.index(), &rule, 1,
                   {.n = static_cast<int64_t>(n),
                    .p = parameter.data(),
                    .grad = gradient.data(),
                    .grad_type = Type::F16,
                    .states = states,
                    .state_count = 2,
                    .low = rounded.data(),
                    .low_type = Type::F16});
  }
  const Table* table_ = nullptr;
};

std::vector<Half> every_half() {
  std::vector<Half> all(1 << 16);
  for (int i = 0; i < 1 << 16; ++i) all[i].bits = static_cast<uint16_t>(i);
  return all;
}

TEST_P(HalfConversion, EveryValueWidens) {
  const auto all = every_half();
  std::vector<float> parameter(all.size()), found;
  std::vector<Half> rounded;
  convert(all, parameter, found, rounded);
  for (size_t i = 0; i < all.size(); ++i) {
    const float expected = static_cast<float>(c10::Half(all[i].bits, c10::Half::from_bits()));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(found[i])) << i;
    } else {
      ASSERT_EQ(found[i], expected) << i;
    }
  }
}

/// Every half, the middle to its neighbour and the floats beside that middle, and random bits.
std::vector<float> floats_to_round() {
  std::vector<float> values;
  for (int i = 0; i < 1 << 16; ++i) {
    const auto value = [](int bits) {
      return static_cast<float>(c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits()));
    };
    const float here = value(i), next = (i & 0x7fff) == 0x7bff ? std::copysign(65536.0f, here)
                                                               : value((i + 1) & 0xffff);
    const float middle = here + (next - here) / 2;
    for (const float x :
         {here, middle, std::nextafterf(middle, INFINITY), std::nextafterf(middle, -INFINITY)})
      values.push_back(x);
  }
  std::mt19937 engine(7);
  for (int i = 0; i < 1'000'000; ++i)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(engine())));
  return values;
}

TEST_P(HalfConversion, EveryRoundingIsATens) {
  auto values = floats_to_round();
  const auto n = static_cast<int64_t>(values.size());
  const at::Tensor expected = at::from_blob(values.data(), {n}, at::kFloat).to(at::kHalf);
  std::vector<float> widened;
  std::vector<Half> found;
  convert(std::vector<Half>(values.size()), values, widened, found);
  const auto* bits = reinterpret_cast<const uint16_t*>(expected.const_data_ptr());
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      ASSERT_EQ(found[i].bits & 0x7c00, 0x7c00);
      ASSERT_NE(found[i].bits & 0x03ff, 0);
    } else {
      ASSERT_EQ(found[i].bits, bits[i]) << values[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, HalfConversion, testing::Values("avx512", "avx2", "baseline"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace dsj::kernels
