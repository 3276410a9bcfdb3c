// Recorded DeepSpeed runs, which lie beside the checkout and are not part of it: their ds_configs
// resolve to what DeepSpeed ran. Skips when they are absent.
#include <gtest/gtest.h>

#include <iostream>

#include "job/dsconfig/resolve.h"
#include "tests/job/dsconfig/shared_files.h"

namespace dsj::dsconfig {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

TEST(SharedTest, GoldenRunsResolveToWhatDeepSpeedRan) {
  const fs::path folder = shared() / "golden" / "deepspeed_0.19.8";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here: NOT RUN";
  int agree = 0, unsupported = 0, refused = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::string text = slurp(entry.path());
    for (size_t at; (at = text.find("Infinity")) != std::string::npos;) text.replace(at, 8, "null");
    const json run = json::parse(text);
    SCOPED_TRACE(entry.path().filename().string());
    const Resolution r = resolve(run["ds_config"], {}, {.world_size = run["world"]});
    if (run["status"] != "ok") {
      // The same ds_config runs where the device has the type; Lamb and Lion have no kernel in
      // DeepSpeed's CPU build, which is not a rule about the ds_config. What 0.19 has dropped
      // does here what 0.18.9 did.
      const std::string why = run["error"]["first_line"];
      const bool device = why == "Type fp16 is not supported on your device." ||
                          why.contains("CPU backend") ||
                          why.starts_with("OneBitAdam is not a supported");
      EXPECT_EQ(r.runnable(), device) << "DeepSpeed refused this one: " << why;
      ++refused;
      continue;
    }
    EXPECT_TRUE(r.ok()) << first_problem(r.findings);
    EXPECT_EQ(r.config.micro_batch_size, run["micro"]);
    EXPECT_EQ(r.config.gradient_accumulation_steps, run["accum"]);
    EXPECT_EQ(r.config.train_batch_size, run["train_batch"]);
    EXPECT_EQ(r.config.zero.stage, run["zero_stage"]);
    if (!r.runnable()) {
      std::cout << "unsupported: " << entry.path().filename().string() << ": "
                << first_problem(r.findings) << "\n";
      ++unsupported;
      continue;
    }
    const json& params = run["ds_config"]["optimizer"]["params"];
    EXPECT_DOUBLE_EQ(r.config.optimizer.lr, params["lr"]);
    EXPECT_DOUBLE_EQ(r.config.optimizer.weight_decay, params.value("weight_decay", 0.0));
    EXPECT_DOUBLE_EQ(r.config.optimizer.beta2,
                     params.contains("betas") ? params["betas"][1].get<double>() : 0.999);
    EXPECT_DOUBLE_EQ(r.config.gradient_clipping, run["ds_config"].value("gradient_clipping", 1.0));
    EXPECT_EQ(r.config.precision == Precision::Bf16, run["ds_config"].contains("bf16"));
    // Without one DeepSpeed's engine keeps its rate; the repeated runs say "constant".
    EXPECT_EQ(r.config.scheduler.type,
              run["ds_config"].contains("scheduler")
                  ? run["ds_config"]["scheduler"]["type"].get<std::string>()
                  : "linear");
    ++agree;
  }
  std::cout << "golden: " << agree << " runnable and equal, " << unsupported << " unsupported, "
            << refused << " refused as by DeepSpeed\n";
  EXPECT_GT(agree, 30);
}

}  // namespace
}  // namespace dsj::dsconfig
