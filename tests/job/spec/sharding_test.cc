#include "job/spec/sharding.h"

#include <gtest/gtest.h>

#include "job/spec/job.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

/// Stages as accelerate's guide compares FSDP with DeepSpeed: FULL_SHARD is 3, SHARD_GRAD_OP 2.
TEST(Sharding, TrainersWords) {
  struct Case {
    const char* words;
    int stage;
    bool offload;
  };
  for (const Case& one :
       {Case{"full_shard auto_wrap", 3, false}, Case{"full_shard", 3, false},
        Case{"full_shard,auto_wrap,offload", 3, true},
        Case{"offload shard_grad_op auto_wrap", 2, true}, Case{"no_shard", 0, false},
        Case{"True", 3, false}, Case{"False", 0, false}, Case{"", 0, false}}) {
    const auto sharding = sharding_of_words(one.words);
    ASSERT_TRUE(sharding) << one.words << ": " << sharding.error().to_string();
    EXPECT_EQ(sharding->stage, one.stage) << one.words;
    EXPECT_EQ(sharding->offload, one.offload) << one.words;
  }
  for (const char* words : {"hybrid_shard auto_wrap", "hybrid_shard_zero2", "offload", "full", "3"})
    EXPECT_FALSE(sharding_of_words(words)) << words;
  EXPECT_NE(sharding_of_words("hybrid_shard").error().hint.find("mics_shard_size"),
            std::string::npos);
}

TEST(Sharding, SettingsOfAccelerateAndAxolotl) {
  struct Case {
    const char* settings;
    int stage;
    bool offload = false, recompute = false;
  };
  for (const Case& one :
       {Case{R"({"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": false})", 3},
        Case{R"({"fsdp_sharding_strategy": 1, "fsdp_offload_params": true})", 3, true},
        Case{R"({"fsdp_sharding_strategy": "SHARD_GRAD_OP"})", 2},
        Case{R"({"fsdp_sharding_strategy": 2, "fsdp_offload_params": "true"})", 2, true},
        Case{R"({"fsdp_sharding_strategy": "NO_SHARD", "fsdp_offload_params": true})", 0},
        Case{R"({"fsdp_version": 1, "fsdp_reshard_after_forward": "FULL_SHARD"})", 3},
        Case{R"({"fsdp_version": 2, "fsdp_reshard_after_forward": false})", 2},
        Case{R"({"offload_params": true, "reshard_after_forward": true, "version": 2})", 3, true},
        Case{R"({"fsdp_activation_checkpointing": true})", 3, false, true}, Case{"{}", 3}}) {
    const auto sharding = sharding_of_settings(json::parse(one.settings));
    ASSERT_TRUE(sharding) << one.settings << ": " << sharding.error().to_string();
    EXPECT_EQ(sharding->stage, one.stage) << one.settings;
    EXPECT_EQ(sharding->offload, one.offload) << one.settings;
    EXPECT_EQ(sharding->recompute, one.recompute) << one.settings;
  }
  for (const char* settings :
       {R"({"fsdp_sharding_strategy": "HYBRID_SHARD"})", R"({"fsdp_sharding_strategy": 5})",
        R"({"fsdp_sharding_strategy": []})"})
    EXPECT_FALSE(sharding_of_settings(json::parse(settings))) << settings;
}

/// A line of Trainer's that names no ds_config is a job, and says how it shards.
TEST(Sharding, ALineWithoutADsConfig) {
  const std::vector<std::string> line = {"--model_name_or_path=m", "--data_path=d",
                                         "--output_dir=o"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), line.begin(), line.end());
    return manifest_from_arguments(more, false);
  };
  const json::json_pointer stage("/spec/deepspeed/config/zero_optimization/stage");
  const auto plain = with({});
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->manifest[stage], 0);
  ASSERT_EQ(plain->findings.size(), 1u);
  EXPECT_EQ(plain->findings[0].path, "--deepspeed");
  const auto fsdp = with({"--fsdp", "full_shard", "auto_wrap",
                          "--fsdp_transformer_layer_cls_to_wrap", "LlamaDecoderLayer"});
  ASSERT_TRUE(fsdp) << fsdp.error().to_string();
  EXPECT_EQ(fsdp->manifest[stage], 3);
  EXPECT_EQ(fsdp->findings.size(), 2u);
  const auto named = with({"--deepspeed=ds.json", "--fsdp="});
  ASSERT_TRUE(named) << named.error().to_string();
  EXPECT_EQ(named->manifest["spec"]["deepspeed"]["configFrom"]["file"], "ds.json");
  EXPECT_TRUE(named->findings.empty());
  EXPECT_FALSE(with({"--deepspeed=ds.json", "--fsdp=full_shard"}));
  EXPECT_FALSE(with({"--fsdp=hybrid_shard"}));
}

}  // namespace
}  // namespace dsj::jobspec
