#include "engine/zero/initial_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dsj::zero {
namespace {

const layout::Slot kA{"model.layers.0.self_attn.q_proj.lora_A.weight", {8, 400}, 0, 3200};

std::vector<float> adapter_values(const layout::Slot& slot, uint64_t seed,
                                  AdapterInit init = AdapterInit::Zero) {
  std::vector<float> out(slot.numel, -1);
  initial_adapter(slot, init, /*rank=*/8, seed, 0, out);
  return out;
}

TEST(InitialAdapter, IsUniformWithinOneOverTheRootOfTheInput) {
  const auto a = adapter_values(kA, 42);
  const double bound = 1 / std::sqrt(400.0);
  double sum = 0, squares = 0, largest = 0;
  for (const float value : a) {
    sum += value;
    squares += static_cast<double>(value) * value;
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.99 * bound);
  EXPECT_NEAR(sum / 3200, 0, 4 * bound / std::sqrt(3.0 * 3200));
  EXPECT_NEAR(squares / 3200, bound * bound / 3, 0.05 * bound * bound / 3);
}

TEST(InitialAdapter, AnElementIsTheSameWhoeverOwnsIt) {
  const auto whole = adapter_values(kA, 42);
  std::vector<float> part(700);
  initial_adapter(kA, AdapterInit::Zero, /*rank=*/8, 42, 1234, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1234));
}

TEST(InitialAdapter, SeedsAndNamesDiffer) {
  layout::Slot other = kA;
  other.name = "model.layers.1.self_attn.q_proj.lora_A.weight";
  EXPECT_NE(adapter_values(kA, 42), adapter_values(kA, 43));
  EXPECT_NE(adapter_values(kA, 42), adapter_values(other, 42));
}

TEST(InitialAdapter, BIsZero) {
  const layout::Slot b{"model.layers.0.self_attn.q_proj.lora_B.weight", {4, 8}, 0, 32};
  EXPECT_EQ(adapter_values(b, 42), std::vector<float>(32, 0.0f));
}

/// PEFT's reset_lora_parameters: normal with deviation 1 / r, B zeros.
TEST(InitialAdapter, GaussianIsNormalWithOneOverTheRank) {
  const auto a = adapter_values(kA, 42, AdapterInit::Gaussian);
  double squares = 0, within = 0;
  for (const float value : a) {
    squares += static_cast<double>(value) * value;
    within += std::abs(value) < 1.0 / 8;
  }
  EXPECT_NEAR(std::sqrt(squares / 3200), 1.0 / 8, 0.05 / 8);
  EXPECT_NEAR(within / 3200, 0.6827, 0.03) << "within one deviation";
  const layout::Slot b{"q_proj.lora_B.weight", {4, 8}, 0, 32};
  EXPECT_EQ(adapter_values(b, 42, AdapterInit::Gaussian), std::vector<float>(32, 0.0f));
}

/// PEFT's false leaves both as torch.nn.Linear begins: uniform within one over the root of its input.
TEST(InitialAdapter, RandomDrawsBToo) {
  EXPECT_EQ(adapter_values(kA, 42, AdapterInit::Random), adapter_values(kA, 42));
  const layout::Slot b{"q_proj.lora_B.weight", {500, 16}, 0, 8000};
  double largest = 0, squares = 0;
  for (const float value : adapter_values(b, 42, AdapterInit::Random)) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
    squares += static_cast<double>(value) * value;
  }
  EXPECT_LE(largest, 0.25);
  EXPECT_GT(largest, 0.249);
  EXPECT_NEAR(squares / 8000, 0.25 * 0.25 / 3, 0.05 * 0.25 * 0.25 / 3);
}

TEST(InitialScore, IsNormalAndTheSameWhoeverOwnsIt) {
  const layout::Slot score{"score.weight", {1, 20000}, 0, 20000};
  std::vector<float> whole(20000), part(700);
  initial_score(score, 42, 0.02, 0, whole);
  initial_score(score, 42, 0.02, 1234, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 1234));
  double sum = 0, squares = 0, within = 0;
  for (const float value : whole) {
    sum += value;
    squares += static_cast<double>(value) * value;
    within += std::abs(value) < 0.02;
  }
  EXPECT_NEAR(sum / 20000, 0, 4 * 0.02 / std::sqrt(20000));
  EXPECT_NEAR(std::sqrt(squares / 20000), 0.02, 0.0005);
  EXPECT_NEAR(within / 20000, 0.6827, 0.015);
  std::vector<float> other(700);
  initial_score(score, 43, 0.02, 1234, other);
  EXPECT_NE(other, part);
}

}  // namespace
}  // namespace dsj::zero
