#include "job/dsconfig/read/check.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "job/dsconfig/keys/keys.h"
#include "job/dsconfig/keys/resolved_json.h"
#include "job/dsconfig/resolve.h"
#include "tests/support/json_path.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

struct Case {
  const char* text;
  Severity severity;
  const char* path;
  const char* says;  ///< in the message or the hint
};

void expect_one(const Case& c) {
  const Checked checked = check(json::parse(c.text));
  ASSERT_EQ(checked.findings.size(), 1u) << c.text;
  const Finding& finding = checked.findings[0];
  EXPECT_EQ(finding.severity, c.severity) << c.text << ": " << finding.message;
  EXPECT_EQ(finding.path, c.path) << c.text;
  EXPECT_NE((finding.message + " " + finding.hint).find(c.says), std::string::npos)
      << c.text << ": " << finding.message << " " << finding.hint;
}

TEST(CheckTest, ATildeIsNotExpandedInPaths) {
  for (const Case& c : {
           Case{R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme",
                "nvme_path": "~/nvme"}}})",
                Severity::Error, "zero_optimization.offload_optimizer.nvme_path",
                "~ is not expanded here"},
           Case{R"({"csv_monitor": {"enabled": true, "output_path": "~"}})", Severity::Error,
                "csv_monitor.output_path", "write /"},
       })
    expect_one(c);
}

/// From ds_configs of public repositories. DeepSpeed trains with each of them.
TEST(CheckTest, WhatDeepSpeedTrainsWithIsAWarning) {
  for (const Case& c : {
           Case{R"({"checkpoint": {"use_node_local_storage": true}})", Severity::Warning,
                "checkpoint.use_node_local_storage", "which every node must reach"},
           Case{R"({"msamp": {"enabled": false}})", Severity::Warning, "msamp", "unknown key"},
       })
    expect_one(c);
}

TEST(CheckTest, SlipsAreErrorsWithTheRightName) {
  for (const Case& c : {
           Case{R"({"gradient_cliping": 1})", Severity::Error, "gradient_cliping",
                "did you mean \"gradient_clipping\"?"},
           Case{R"({"zero_optimization": {"comm_overlap": true}})", Severity::Error,
                "zero_optimization.comm_overlap", "did you mean \"overlap_comm\"?"},
           Case{R"({"zero_optimization": {"stage3_param_persitence_threshold": 1}})",
                Severity::Error, "zero_optimization.stage3_param_persitence_threshold",
                "did you mean \"stage3_param_persistence_threshold\"?"},
           Case{R"({"train_micro_batch_size_per_gpus": 1})", Severity::Error,
                "train_micro_batch_size_per_gpus", "train_micro_batch_size_per_gpu"},
           Case{R"({"overlap_comm": true})", Severity::Error, "overlap_comm",
                "it belongs at zero_optimization.overlap_comm"},
           Case{R"({"zero_optimization": {"gradient_clipping": 1}})", Severity::Error,
                "zero_optimization.gradient_clipping", "wrong section"},
           Case{R"({"zero_optimization": {"frobnicate": 1}})", Severity::Error,
                "zero_optimization.frobnicate", "DeepSpeed refuses unknown keys"},
           Case{R"({"optimizer": {"type": "AdamW", "params": {"beta1": 0.9}}})", Severity::Error,
                "optimizer.params.beta1", "did you mean \"betas\"?"},
           Case{R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_steps": 5}}})",
                Severity::Error, "scheduler.params.warmup_steps",
                "did you mean \"warmup_num_steps\"?"},
           Case{R"({"scheduler": {"type": "WarmupLR", "params": {"frobnicate": 5}}})",
                Severity::Error, "scheduler.params.frobnicate", "not a parameter"},
           Case{R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1e-05}}})",
                Severity::Error, "scheduler.params.warmup_num_steps", "a whole number"},
           Case{R"({"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1}}})",
                Severity::Error, "optimizer.params.max_grad_norm", "gradient_clipping"},
       })
    expect_one(c);
}

TEST(CheckTest, TypesAndRanges) {
  for (const Case& c : {
           Case{R"({"train_batch_size": "5e2"})", Severity::Warning, "train_batch_size",
                "read as 500"},
           Case{R"({"train_batch_size": 1.5})", Severity::Error, "train_batch_size",
                "expected a whole number"},
           Case{R"({"train_batch_size": true})", Severity::Error, "train_batch_size",
                "expected a whole number"},
           Case{R"({"train_batch_size": 0})", Severity::Error, "train_batch_size", "at least 1"},
           Case{R"({"train_batch_size": -2})", Severity::Error, "train_batch_size", "at least 1"},
           Case{R"({"train_batch_size": 18446744073709551615})", Severity::Error,
                "train_batch_size", "expected a whole number"},
           Case{R"({"gradient_clipping": "1.0"})", Severity::Warning, "gradient_clipping",
                "read as 1.0"},
           Case{R"({"gradient_clipping": true})", Severity::Warning, "gradient_clipping", "1.0"},
           Case{R"({"gradient_clipping": "much"})", Severity::Error, "gradient_clipping",
                "expected a number"},
           Case{R"({"bf16": {"enabled": "true"}})", Severity::Warning, "bf16.enabled",
                "read as true"},
           Case{R"({"bf16": {"enabled": "maybe"}})", Severity::Error, "bf16.enabled",
                "expected true or false"},
           Case{R"({"zero_optimization": {"overlap_comm": 2}})", Severity::Error,
                "zero_optimization.overlap_comm", "expected true or false"},
           Case{R"({"zero_optimization": {"stage": 4}})", Severity::Error,
                "zero_optimization.stage", "from 0 to 3"},
           Case{R"({"zero_optimization": {"stage": null}})", Severity::Error,
                "zero_optimization.stage", "found null"},
           Case{R"({"zero_optimization": [2]})", Severity::Error, "zero_optimization",
                "expected an object"},
           Case{R"({"zero_optimization": true})", Severity::Warning, "zero_optimization",
                "old form"},
           Case{R"({"zero_optimization": {"legacy_stage1": true}})", Severity::Error,
                "zero_optimization.legacy_stage1", "no longer exists"},
           Case{R"({"fp16": true})", Severity::Error, "fp16", "expected an object"},
           Case{R"({"fp16": {"loss_scale": -1}})", Severity::Error, "fp16.loss_scale",
                "at least 0"},
           Case{R"({"communication_data_type": "fp8"})", Severity::Error, "communication_data_type",
                "one of fp32"},
           Case{R"({"steps_per_print": "Infinity"})", Severity::Warning, "steps_per_print",
                "read as 0"},
           Case{R"({"steps_per_print": "auto"})", Severity::Warning, "steps_per_print",
                "the default is used"},
           Case{R"({"zero_optimization": {"prefetch_bucket_size": 1,
                                          "stage3_prefetch_bucket_size": 1}})",
                Severity::Error, "zero_optimization.stage3_prefetch_bucket_size", "given twice"},
           Case{R"([1, 2])", Severity::Error, "", "expected an object"},
       })
    expect_one(c);
}

TEST(CheckTest, WhatIsSilent) {
  for (const char* text : {
           R"({"_comment": "x", "comment": 1, "zero_optimization": {"_comment_2": [], "//": 1}})",
           R"({"train_batch_size": 1e2, "zero_optimization": {"reduce_bucket_size": 5e8}})",
           R"({"train_batch_size": null, "optimizer": null, "steps_per_print": null})",
           R"({"fp16": {"enabled": false, "min_loss_scale": 1e-10, "hysteresis": 2}})",
           R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}})",
           R"({"amp": {"enabled": false, "opt_level": "O1"}})",
           R"({"zero_optimization": {"offload_optimizer": {"device": "none", "pin_memory": true},
                                     "offload_param": {}, "cpu_offload": false}})",
           R"({"compression_training": {"weight_quantization": {"shared_parameters":
               {"enabled": false}}}})",
           R"({"activation_checkpointing": {"partition_activations": false,
               "number_checkpoints": null}})",
           R"({"prescale_gradients": false, "gradient_predivide_factor": 1, "zero_optimization":
               {"zero_hpz_partition_size": 1, "mics_shard_size": -1}})",
           R"({"optimizer": {"type": "Lamb", "params": {"max_coeff": 0.3, "min_coeff": 0.01}}})",
           R"({"aio": {"block_size": 1048576, "thread_count": 1, "intra_op_parallelism": 1}})",
           R"({"checkpoint": {"tag_validation": "FAIL"}})",
       }) {
    const Checked checked = check(json::parse(text));
    for (const Finding& finding : checked.findings)
      ADD_FAILURE() << finding.path << ": " << finding.message;
  }
}

TEST(CheckTest, KnownAndNotBuiltIsUnsupportedOnlyWhenSwitchedOn) {
  for (const auto& [text, path] : {
           std::pair{R"({"nebula": {"enabled": true}})", "nebula"},
           std::pair{R"({"sparse_attention": {"mode": "fixed"}})", "sparse_attention"},
           std::pair{R"({"compression_training": {"a": [{"enabled": true}]}})",
                     "compression_training"},
           std::pair{R"({"zero_optimization": {"offload_optimizer": {"super_offload": true}}})",
                     "zero_optimization.offload_optimizer.super_offload"},
           std::pair{R"({"aio": {"use_gds": true}})", "aio.use_gds"},
           std::pair{R"({"zero_optimization": {"zeropp_loco_param": {"err_beta": 0.8}}})",
                     "zero_optimization.zeropp_loco_param"},
           std::pair{R"({"tensor_parallel": {"autotp_size": 2}})", "tensor_parallel"},
           std::pair{R"({"progressive_layer_drop": {"enabled": true}})", "progressive_layer_drop"},
           std::pair{R"({"data_efficiency": {"data_sampling":
                     {"dynamic_batching": {"enabled": true, "max_tokens": 8}}}})",
                     "data_efficiency.data_sampling.dynamic_batching"},
       }) {
    const Checked checked = check(json::parse(text));
    ASSERT_EQ(checked.findings.size(), 1u) << text;
    EXPECT_EQ(checked.findings[0].severity, Severity::Unsupported) << text;
    EXPECT_EQ(checked.findings[0].path, path);
    EXPECT_FALSE(checked.findings[0].hint.empty()) << "the reason";
  }
}

TEST(CheckTest, UnknownKeysWarnAndStrictRefusesThem) {
  Checked checked = check(json::parse(R"({"my_setting": 1, "aio": {"foo": 1}})"));
  ASSERT_EQ(checked.findings.size(), 2u);
  for (const Finding& finding : checked.findings) EXPECT_EQ(finding.severity, Severity::Warning);
  make_strict(checked.findings);
  for (const Finding& finding : checked.findings) EXPECT_EQ(finding.severity, Severity::Error);
  Checked other = check(json::parse(R"({"graph_harvesting": true})"));
  make_strict(other.findings);
  EXPECT_EQ(other.findings[0].severity, Severity::Warning) << "known: strict does not touch it";
}

TEST(CheckTest, OneFormForEveryKey) {
  const Checked checked = check(json::parse(R"({"bfloat16": {"enabled": "True"},
      "zero_optimization": {"prefetch_bucket_size": 3e3, "reduce_bucket_size": "auto"},
      "checkpoint": {"tag_validation": "ignore"}, "optimizer": {"params": {"lr": 1}}})"));
  EXPECT_EQ(checked.config["bf16"]["enabled"], true);
  EXPECT_TRUE(
      checked.config["zero_optimization"]["stage3_prefetch_bucket_size"].is_number_integer());
  EXPECT_EQ(checked.config["zero_optimization"]["reduce_bucket_size"], "auto");
  EXPECT_EQ(checked.config["checkpoint"]["tag_validation"], "Ignore");
  EXPECT_TRUE(checked.config["optimizer"]["params"]["lr"].is_number_float());
  EXPECT_EQ(checked.written_path("bf16.enabled"), "bfloat16.enabled");
  EXPECT_EQ(checked.written_path("train_batch_size"), "train_batch_size");
  EXPECT_EQ(checked.find("zero_optimization.stage"), nullptr);
}

TEST(KeysTest, TheTableIsConsistent) {
  std::set<std::string> paths;
  for (const Key& key : all_keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path << " is there twice";
    const size_t dot = key.path.rfind('.');
    if (dot != std::string::npos) {
      const Key* parent = find_key(key.path.substr(0, dot));
      ASSERT_NE(parent, nullptr) << key.path;
      EXPECT_EQ(parent->type, Type::Section) << key.path;
    }
    EXPECT_EQ(find_key(key.path), &key);
    // The default of a key raises nothing about itself.
    if (key.fallback.is_null() || key.path.find('.') != std::string::npos) continue;
    EXPECT_TRUE(check({{key.path, key.fallback}}).findings.empty()) << key.path;
  }
  EXPECT_GT(paths.size(), 220u);
}

TEST(KeysTest, TheSectionsOfDeepSpeedAreKnown) {
  for (const char* name : {"train_batch_size",
                           "gradient_clipping",
                           "steps_per_print",
                           "optimizer",
                           "scheduler",
                           "communication_data_type",
                           "seq_parallel_comm_data_type",
                           "prescale_gradients",
                           "gradient_predivide_factor",
                           "gradient_allreduce_op",
                           "sparse_gradients",
                           "disable_allgather",
                           "dump_state",
                           "graph_harvesting",
                           "vocabulary_size",
                           "wall_clock_breakdown",
                           "memory_breakdown",
                           "dataloader_drop_last",
                           "zero_allow_untested_optimizer",
                           "zero_force_ds_cpu_optimizer",
                           "use_data_before_expert_parallelism",
                           "log_level",
                           "datastates_ckpt",
                           "sequence_parallel_size",
                           "fp16",
                           "bf16",
                           "bfloat16",
                           "data_types",
                           "amp",
                           "torch_autocast",
                           "zero_optimization",
                           "activation_checkpointing",
                           "comms_logger",
                           "tensorboard",
                           "csv_monitor",
                           "wandb",
                           "comet",
                           "flops_profiler",
                           "timers",
                           "aio",
                           "checkpoint",
                           "elasticity",
                           "autotuning",
                           "data_efficiency",
                           "curriculum_learning",
                           "progressive_layer_drop",
                           "eigenvalue",
                           "quantize_training",
                           "compression_training",
                           "sparse_attention",
                           "pipeline",
                           "hybrid_engine",
                           "nebula",
                           "weight_quantization",
                           "tensor_parallel",
                           "expert_parallel",
                           "compile",
                           "managed_gradient_accumulation"})
    EXPECT_NE(find_key(name), nullptr) << name;
}

/// Any JSON: an answer, and resolve() too.
TEST(CheckTest, DamagedConfigsNeverCrash) {
  std::mt19937 random(11);
  const std::vector<json> values = {nullptr,
                                    true,
                                    false,
                                    0,
                                    -1,
                                    1,
                                    7.5,
                                    1e300,
                                    "auto",
                                    "",
                                    "x",
                                    "5e8",
                                    json::array(),
                                    json::object(),
                                    INT64_MAX,
                                    UINT64_MAX,
                                    json::array({0.9, "y"}),
                                    json{{"enabled", true}},
                                    json{{"type", "AdamW"}, {"params", {{"lr", "auto"}}}}};
  int ok = 0;
  for (int round = 0; round < 5'000; ++round) {
    json config = {{"train_micro_batch_size_per_gpu", 1}};
    for (int edits = 1 + static_cast<int>(random() % 6); edits > 0; --edits) {
      const Key& key = all_keys()[random() % all_keys().size()];
      testing_support::set_at(config, key.path, values[random() % values.size()]);
    }
    TrainingArgs args;
    if (random() % 2) args.max_steps = static_cast<int64_t>(random() % 100);
    if (random() % 2) args.warmup_ratio = 0.1;
    if (random() % 2) args.num_train_epochs = 1e300;
    const Resolution resolution =
        resolve(config, args, {.world_size = 2, .hidden_size = 64, .dataset_rows = 100});
    ok += resolution.ok();
    EXPECT_EQ(to_json(resolution.config).dump().find("\"auto\""), std::string::npos);
    for (const Finding& finding : resolution.findings) EXPECT_FALSE(finding.message.empty());
    resolve_alone(config);
  }
  EXPECT_GT(ok, 100);
}

TEST(ArgumentsTest, TheDeviceIsAutoCpuOrCuda) {
  const json config = {{"train_micro_batch_size_per_gpu", 1}};
  TrainingArgs args;
  for (const char* device : {"auto", "cpu", "cuda"}) {
    args.device = device;
    for (const Finding& finding : resolve(config, args, {}).findings)
      EXPECT_NE(finding.path, "training.device") << finding.message;
  }
  args.device = "gpu";
  std::string found;
  for (const Finding& finding : resolve(config, args, {}).findings)
    if (finding.path == "training.device") found = finding.message + ": " + finding.hint;
  EXPECT_EQ(found, "\"gpu\" is not a choice: expected auto or cpu or cuda");
}

}  // namespace
}  // namespace dsj::dsconfig
