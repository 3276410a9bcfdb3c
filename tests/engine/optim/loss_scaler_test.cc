#include "engine/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/shared_files.h"

namespace dsj::optim {
namespace {

TEST(LossScaler, EveryTraceOfDeepSpeedsOwnClass) {
  const auto path = testing_support::golden_directory() / "loss_scaler.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  std::ifstream file(path);
  const auto golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden["traces"].size(), 48u);
  for (const auto& row : golden["traces"]) {
    const auto& params = row["params"];
    LossScaler scaler({.initial = params["init_scale"],
                       .window = params["scale_window"],
                       .hysteresis = params["delayed_shift"],
                       .consecutive_hysteresis = params["consecutive_hysteresis"],
                       .minimum = params["min_scale"]});
    const std::string overflow = row["overflow"];
    const std::string name = params.dump() + " " + row["seq"].get<std::string>();
    for (size_t i = 0; i < row["trace"].size(); ++i) {
      ASSERT_TRUE(scaler.update(overflow[i] == '1')) << name << " step " << i;
      ASSERT_EQ(scaler.scale(), row["trace"][i][1].get<double>()) << name << " step " << i;
      ASSERT_EQ(scaler.state().hysteresis, row["trace"][i][2].get<int64_t>()) << name << i;
    }
    if (row["error"].is_null()) {
      EXPECT_EQ(row["trace"].size(), overflow.size()) << name;
    } else {
      const size_t at = row["error"]["at"];
      ASSERT_EQ(row["trace"].size(), at) << name;
      EXPECT_FALSE(scaler.update(overflow[at] == '1')) << name;
    }
  }
}

TEST(LossScaler, HalvesToATinyMinimumAndSaysWhenItIsThere) {
  LossScaler scaler({.initial = 1, .hysteresis = 1, .minimum = 1e-10});
  int halvings = 0;
  while (scaler.update(true)) ++halvings;
  EXPECT_EQ(halvings, 34);  // 2^-33 is above 1e-10, the next half is below
  EXPECT_EQ(scaler.scale(), 1e-10);
  const auto before = scaler.state();
  EXPECT_FALSE(scaler.update(true));
  EXPECT_EQ(scaler.state(), before);
  EXPECT_TRUE(scaler.update(false));
}

TEST(LossScaler, GoesOnFromItsState) {
  const dsconfig::LossScaleConfig config{.initial = 1024, .window = 3, .hysteresis = 2};
  LossScaler whole(config);
  const std::string overflow = "0100001101000000100";
  for (size_t i = 0; i < overflow.size(); ++i) {
    LossScaler resumed(config);
    resumed.set_state(whole.state());
    LossScaler other = whole;
    for (size_t j = i; j < overflow.size(); ++j) {
      ASSERT_TRUE(other.update(overflow[j] == '1'));
      ASSERT_TRUE(resumed.update(overflow[j] == '1'));
      ASSERT_EQ(other.state(), resumed.state());
    }
    ASSERT_TRUE(whole.update(overflow[i] == '1'));
  }
}

TEST(LossScaler, AFixedScaleStays) {
  LossScaler scaler({.fixed = 128});
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(scaler.update(i % 3 != 0));
  EXPECT_EQ(scaler.scale(), 128);
}

/// torch.amp.GradScaler: a growth after each 3rd step in a row without an overflow, a halving at each
/// overflow; apex also has a maximum.
TEST(LossScaler, LikeTorchsGradScaler) {
  LossScaler scaler({.initial = 16,
                     .window = 3,
                     .hysteresis = 1,
                     .minimum = 0x1p-126,
                     .maximum = 32,
                     .like_torch = true});
  std::string seen;
  for (const char overflow : std::string("000000100001100")) {
    ASSERT_TRUE(scaler.update(overflow == '1'));
    seen += std::to_string(static_cast<int>(scaler.scale())) + " ";
  }
  EXPECT_EQ(seen, "16 16 32 32 32 32 16 16 16 32 32 16 8 8 8 ");
}

TEST(LossScaler, OnlyFp16IsScaled) {
  dsconfig::ResolvedConfig config;
  config.loss_scale.initial = 4096;
  EXPECT_EQ(LossScaler::of(config).scale(), 1);
  config.precision = dsconfig::Precision::Bf16;
  EXPECT_EQ(LossScaler::of(config).scale(), 1);
  config.precision = dsconfig::Precision::Fp16;
  EXPECT_EQ(LossScaler::of(config).scale(), 4096);
  config.precision = dsconfig::Precision::Fp32;
  config.autocast.products = dsconfig::Precision::Fp16;
  EXPECT_EQ(LossScaler::of(config).scale(), 4096) << "products in fp16";
}

}  // namespace
}  // namespace dsj::optim
