// Every key that the table calls working, by reading: another value of the key gives another
// ResolvedConfig, at the place and with the value that the key asks for. That the engine follows
// ResolvedConfig is the business of the other tests that the table names.
#include <gtest/gtest.h>

#include <set>

#include "job/dsconfig/keys/keys.h"
#include "job/dsconfig/keys/resolved_json.h"
#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;

constexpr char kTest[] = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig";

struct KeyReading {
  const char* path;
  const char* value;    ///< as the user writes it
  const char* pointer;  ///< into to_json(ResolvedConfig)
  const char* reads;    ///< what is found there
  const char* context = "{}";
};

constexpr char kAdam[] = R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5}}})";
constexpr char kDecay[] =
    R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 77}}})";
constexpr char kStage3[] = R"({"zero_optimization": {"stage": 3}})";
constexpr char kInBf16[] = R"({"bf16": {"enabled": true}})";
constexpr char kInFp16[] = R"({"fp16": {"enabled": true}})";

const std::vector<KeyReading>& readings() {
  static const std::vector<KeyReading> all = {
      {"train_batch_size", "12", "/train_batch_size", "12"},
      {"train_micro_batch_size_per_gpu", "3", "/train_micro_batch_size_per_gpu", "3"},
      {"gradient_accumulation_steps", "4", "/gradient_accumulation_steps", "4"},
      {"gradient_clipping", "0.25", "/gradient_clipping", "0.25"},
      {"dataloader_drop_last", "true", "/dataloader_drop_last", "true"},
      {"checkpoint.load_universal", "true", "/checkpoint/load_universal", "true"},
      {"activation_checkpointing.cpu_checkpointing", "true",
       "/activation_checkpointing/cpu_checkpointing", "true"},
      {"optimizer.type", R"("Adam")", "/optimizer/decoupled_weight_decay", "false",
       R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}}})"},
      {"optimizer.params.lr", "0.125", "/optimizer/lr", "0.125", kAdam},
      {"optimizer.params.betas", "[0.5, 0.75]", "/optimizer/betas", "[0.5, 0.75]", kAdam},
      {"optimizer.params.eps", "0.001", "/optimizer/eps", "0.001", kAdam},
      {"optimizer.params.weight_decay", "0.5", "/optimizer/weight_decay", "0.5", kAdam},
      {"optimizer.params.adam_w_mode", "false", "/optimizer/decoupled_weight_decay", "false",
       kAdam},
      {"optimizer.params.bias_correction", "false", "/optimizer/bias_correction", "false", kAdam},
      {"scheduler.type", R"("WarmupLR")", "/scheduler/type", R"("WarmupLR")",
       R"({"scheduler": {"type": "LRRangeTest"}})"},
      {"scheduler.params.warmup_min_lr", "0.25", "/scheduler/min_lr", "0.25", kDecay},
      {"scheduler.params.warmup_max_lr", "0.75", "/scheduler/max_lr", "0.75", kDecay},
      {"scheduler.params.warmup_num_steps", "9", "/scheduler/warmup_steps", "9", kDecay},
      {"scheduler.params.warmup_type", R"("linear")", "/scheduler/warmup_type", R"("linear")",
       kDecay},
      {"scheduler.params.total_num_steps", "5000", "/scheduler/total_steps", "5000", kDecay},
      {"communication_data_type", R"("fp32")", "/communication_data_type", R"("fp32")", kInBf16},
      {"prescale_gradients", "true", "/prescale_gradients", "true"},
      {"sparse_gradients", "true", "/sparse_gradients", "true"},
      {"gradient_predivide_factor", "2.0", "/gradient_predivide_factor", "2.0"},
      {"gradient_allreduce_op", R"("sum")", "/gradient_allreduce_op", R"("sum")"},
      {"fp16.enabled", "true", "/precision", R"("fp16")"},
      {"fp16.loss_scale", "128", "/fp16/loss_scale", "128.0", kInFp16},
      {"fp16.initial_scale_power", "5", "/fp16/initial_scale", "32.0", kInFp16},
      {"fp16.loss_scale_window", "7", "/fp16/loss_scale_window", "7", kInFp16},
      {"fp16.hysteresis", "5", "/fp16/hysteresis", "5", kInFp16},
      {"fp16.consecutive_hysteresis", "true", "/fp16/consecutive_hysteresis", "true", kInFp16},
      {"fp16.min_loss_scale", "1e-10", "/fp16/min_loss_scale", "1e-10", kInFp16},
      {"bf16.enabled", "true", "/precision", R"("bf16")"},
      {"bf16.check_grad_overflow", "false", "/bf16_check_grad_overflow", "false", kInBf16},
      {"data_types.grad_accum_dtype", R"("fp32")", "/grad_accum_dtype", R"("fp32")", kInBf16},
      {"zero_optimization.stage", "2", "/zero_optimization/stage", "2"},
      {"zero_optimization.reduce_bucket_size", "1000", "/zero_optimization/reduce_bucket_size",
       "1000"},
      {"zero_optimization.allgather_bucket_size", "2000",
       "/zero_optimization/allgather_bucket_size", "2000"},
      {"zero_optimization.overlap_comm", "true", "/zero_optimization/overlap_comm", "true"},
      {"zero_optimization.stage3_prefetch_bucket_size", "3000",
       "/zero_optimization/stage3_prefetch_bucket_size", "3000", kStage3},
      {"zero_optimization.stage3_param_persistence_threshold", "4000",
       "/zero_optimization/stage3_param_persistence_threshold", "4000", kStage3},
      {"zero_optimization.stage3_model_persistence_threshold", "5000",
       "/zero_optimization/stage3_model_persistence_threshold", "5000", kStage3},
      {"zero_optimization.stage3_max_live_parameters", "6000",
       "/zero_optimization/stage3_max_live_parameters", "6000", kStage3},
      {"zero_optimization.zero_hpz_partition_size", "0",
       "/zero_optimization/zero_hpz_partition_size", "0", kStage3},
      {"zero_optimization.mics_shard_size", "1", "/zero_optimization/mics_shard_size", "1",
       kStage3},
      {"zero_optimization.zero_quantized_weights", "true",
       "/zero_optimization/zero_quantized_weights", "true", kStage3},
      {"zero_optimization.zero_quantized_nontrainable_weights", "true",
       "/zero_optimization/zero_quantized_nontrainable_weights", "true", kStage3},
      {"zero_optimization.zero_quantized_gradients", "true",
       "/zero_optimization/zero_quantized_gradients", "true", kStage3},
      {"zero_optimization.stage3_max_reuse_distance", "7000",
       "/zero_optimization/stage3_max_reuse_distance", "7000", kStage3},
  };
  return all;
}

std::string pointer_of(std::string path) {
  for (char& c : path) c = c == '.' ? '/' : c;
  return "/" + path;
}

TEST(WorkingKeys, EachValueReachesTheResolvedConfig) {
  std::set<std::string> read;
  for (const KeyReading& reading : readings()) {
    SCOPED_TRACE(reading.path);
    read.insert(reading.path);
    json without = json::parse(reading.context);
    if (std::string(reading.path).find("batch_size") == std::string::npos)
      without["train_micro_batch_size_per_gpu"] = 1;
    json with = without;
    with[json::json_pointer(pointer_of(reading.path))] = json::parse(reading.value);
    if (!without.contains("train_micro_batch_size_per_gpu"))
      without["train_micro_batch_size_per_gpu"] = 1;
    const json::json_pointer at(reading.pointer);
    const Resolution before = resolve(without, {}, {}), after = resolve(with, {}, {});
    ASSERT_TRUE(before.ok() && after.ok());
    EXPECT_EQ(to_json(after.config)[at], json::parse(reading.reads));
    EXPECT_NE(to_json(before.config)[at], json::parse(reading.reads)) << "this shows nothing";
    const Key* key = find_key(reading.path);
    ASSERT_NE(key, nullptr);
    for (const std::string& alias : key->aliases) {
      json other = without;
      const std::string section = key->path.substr(0, key->path.rfind('.') + 1);
      other[json::json_pointer(pointer_of(section + alias))] = json::parse(reading.value);
      EXPECT_EQ(to_json(resolve(other, {}, {}).config), to_json(after.config)) << alias;
    }
  }
  for (const Key& key : all_keys())
    if (key.test.find(kTest) != std::string::npos) {
      EXPECT_TRUE(read.contains(key.path)) << key.path << " names this test: add its reading";
    }
}

}  // namespace
}  // namespace dsj::dsconfig
