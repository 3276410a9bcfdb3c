#include "job/dsconfig/resolve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "job/dsconfig/keys/resolved_json.h"
#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

json parse(const char* text) {
  return json::parse(text);
}

int count(const Resolution& resolution, Severity severity, const std::string& path) {
  int found = 0;
  for (const Finding& finding : resolution.findings)
    found += finding.severity == severity && finding.path == path;
  return found;
}

std::string from(const Resolution& resolution, const std::string& path) {
  for (const Origin& origin : resolution.origins)
    if (origin.path == path) return origin.from;
  return "";
}

const char* kGuideLike = R"({
  "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16},
  "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
                "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}},
  "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true,
      "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
      "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
      "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true},
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 100,
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
  "wall_clock_breakdown": false})";

TrainingArgs guide_args() {
  TrainingArgs args;
  args.per_device_train_batch_size = 2;
  args.gradient_accumulation_steps = 4;
  args.learning_rate = 1e-6;
  args.weight_decay = 0.01;
  args.adam_beta2 = 0.95;
  args.max_grad_norm = 0.5;
  args.warmup_ratio = 0.03;
  args.max_steps = 2001;
  args.bf16 = true;
  return args;
}

TEST(ResolveTest, AutoTakesTheTrainingArguments) {
  const Resolution r =
      resolve(parse(kGuideLike), guide_args(), {.world_size = 2, .hidden_size = 1024});
  EXPECT_TRUE(r.runnable()) << said(r);
  EXPECT_TRUE(r.findings.empty()) << said(r);
  EXPECT_TRUE(r.complete);
  const ResolvedConfig& c = r.config;
  EXPECT_EQ(c.micro_batch_size, 2);
  EXPECT_EQ(c.gradient_accumulation_steps, 4);
  EXPECT_EQ(c.train_batch_size, 16);
  EXPECT_EQ(c.precision, Precision::Bf16);
  EXPECT_EQ(c.grad_accum_dtype, Precision::Bf16);
  EXPECT_EQ(c.communication_dtype, Precision::Bf16);
  EXPECT_DOUBLE_EQ(c.optimizer.lr, 1e-6);
  EXPECT_DOUBLE_EQ(c.optimizer.weight_decay, 0.01);
  EXPECT_DOUBLE_EQ(c.optimizer.beta1, 0.9);
  EXPECT_DOUBLE_EQ(c.optimizer.beta2, 0.95);
  EXPECT_DOUBLE_EQ(c.optimizer.eps, 1e-8);
  EXPECT_DOUBLE_EQ(c.gradient_clipping, 0.5);
  EXPECT_EQ(c.zero.stage, 3);
  EXPECT_EQ(c.zero.reduce_bucket_size, 1024 * 1024);
  EXPECT_EQ(c.zero.prefetch_bucket_size, 943718);  // int(0.9 * 1048576)
  EXPECT_EQ(c.zero.param_persistence_threshold, 10240);
  EXPECT_EQ(c.zero.max_live_parameters, 1'000'000'000);
  EXPECT_EQ(c.scheduler.type, "WarmupDecayLR");
  EXPECT_DOUBLE_EQ(c.scheduler.max_lr, 1e-6);
  EXPECT_EQ(c.scheduler.warmup_steps, 61);  // ceil(60.03)
  EXPECT_EQ(c.scheduler.total_steps, 2001);
  EXPECT_EQ(c.total_steps, 2001);
  EXPECT_EQ(c.steps_per_print, 100);
  EXPECT_EQ(from(r, "zero_optimization.reduce_bucket_size"), "hidden_size^2");
  EXPECT_EQ(from(r, "optimizer.params.lr"), "training.learningRate");
}

TEST(ResolveTest, AutoWithoutArgumentsTakesHuggingFacesDefaults) {
  const Resolution r = resolve(parse(kGuideLike), {}, {.world_size = 2, .hidden_size = 64});
  EXPECT_TRUE(r.runnable()) << said(r);
  EXPECT_FALSE(r.complete) << "the number of steps is not known";
  EXPECT_EQ(r.config.micro_batch_size, 8);
  EXPECT_EQ(r.config.train_batch_size, 16);
  EXPECT_DOUBLE_EQ(r.config.optimizer.lr, 5e-5);
  EXPECT_DOUBLE_EQ(r.config.gradient_clipping, 1.0);
  EXPECT_EQ(r.config.precision, Precision::Fp32);
}

TEST(ResolveTest, StageThreeAutosKeepTheDefaultAtOtherStages) {
  json config = parse(kGuideLike);
  config["zero_optimization"]["stage"] = 2;
  const Resolution r = resolve(config, guide_args(), {.world_size = 1, .hidden_size = 100});
  EXPECT_EQ(r.config.zero.reduce_bucket_size, 10000);
  EXPECT_EQ(r.config.zero.prefetch_bucket_size, 50'000'000);
  EXPECT_EQ(r.config.zero.param_persistence_threshold, 100'000);
}

TEST(ResolveTest, AHiddenSizeThatIsNotKnownLeavesItIncomplete) {
  const Resolution r = resolve(parse(kGuideLike), guide_args(), {.world_size = 2});
  EXPECT_TRUE(r.ok());
  EXPECT_FALSE(r.complete);
}

TEST(ResolveTest, EveryContradictionIsListedAtOnce) {
  const Resolution r = resolve(parse(R"({
      "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1,
      "gradient_clipping": 0.7, "bf16": {"enabled": false},
      "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.8, 0.9], "eps": 1e-7,
                    "weight_decay": 0.3}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 0.002,
                    "warmup_num_steps": 3, "total_num_steps": 5}}})"),
                               guide_args(), {.world_size = 2});
  for (const char* path :
       {"train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
        "bf16.enabled", "optimizer.params.lr", "optimizer.params.betas",
        "optimizer.params.weight_decay", "scheduler.params.warmup_max_lr",
        "scheduler.params.warmup_num_steps", "scheduler.params.total_num_steps"})
    EXPECT_EQ(count(r, Severity::Error, path), 1) << path << "\n" << said(r);
  EXPECT_EQ(count(r, Severity::Error, "optimizer.params.eps"), 0) << "no argument was given";
  EXPECT_NE(said(r).find("ds_config says 0.001, training.learningRate says 1e-06"),
            std::string::npos)
      << said(r);
}

TEST(ResolveTest, NoOptimizerSectionIsHuggingFacesAdamW) {
  const Resolution r = resolve(parse(R"({"train_micro_batch_size_per_gpu": 1})"), {}, {});
  EXPECT_TRUE(r.runnable()) << said(r);
  EXPECT_DOUBLE_EQ(r.config.optimizer.lr, 5e-5);
  EXPECT_TRUE(r.config.optimizer.decoupled_weight_decay);
  EXPECT_DOUBLE_EQ(r.config.gradient_clipping, 1.0);
  EXPECT_EQ(r.config.scheduler.type, "linear");
  EXPECT_EQ(from(r, "scheduler.type"), "default (Hugging Face)");
  EXPECT_DOUBLE_EQ(r.config.scheduler.max_lr, 5e-5);
}

struct AdamCase {
  const char* text;
  bool decoupled;
};

TEST(ResolveTest, AdamIsAdamWUnlessItSaysOtherwise) {
  for (const AdamCase& c : {
           AdamCase{R"({"type": "Adam"})", true},
           AdamCase{R"({"type": "Adam", "params": {"adam_w_mode": false}})", false},
           AdamCase{R"({"type": "adam", "params": {"torch_adam": true}})", true},
           AdamCase{R"({"type": "AdamW", "params": {"adam_w_mode": false}})", true},
       }) {
    json config = parse(R"({"train_micro_batch_size_per_gpu": 1})");
    config["optimizer"] = parse(c.text);
    const Resolution r = resolve(config, {}, {});
    EXPECT_TRUE(r.runnable()) << c.text << said(r);
    EXPECT_EQ(r.config.optimizer.decoupled_weight_decay, c.decoupled) << c.text;
    EXPECT_DOUBLE_EQ(r.config.optimizer.lr, 1e-3) << "DeepSpeed's own default";
  }
}

TEST(ResolveTest, TheScheduleWhenNothingIsSaid) {
  const json config = parse(R"({"train_micro_batch_size_per_gpu": 1})");
  TrainingArgs args;
  args.max_steps = 100;
  EXPECT_EQ(resolve(config, args, {}).config.scheduler.type, "linear");
  args.warmup_ratio = 0.1;
  const Resolution decay = resolve(config, args, {});
  EXPECT_EQ(decay.config.scheduler.type, "linear");
  EXPECT_EQ(decay.config.scheduler.warmup_steps, 10);
  EXPECT_EQ(decay.config.scheduler.total_steps, 100);
  args.warmup_ratio.reset();
  args.lr_scheduler_kwargs = json{{"num_cycles", 2}};
  EXPECT_EQ(
      count(resolve(config, args, {}), Severity::Error, "training.lrSchedulerKwargs.num_cycles"), 1)
      << "linear has none";
  args.lr_scheduler_kwargs.reset();
  args.warmup_steps = 7;
  EXPECT_EQ(resolve(config, args, {}).config.scheduler.warmup_steps, 7);
  args.lr_scheduler_type = "cosine";
  const Resolution cosine = resolve(config, args, {});
  EXPECT_EQ(cosine.config.scheduler.type, "cosine");
  EXPECT_EQ(cosine.config.scheduler.warmup_steps, 7);
  json with = config;
  with["scheduler"] = parse(R"({"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}})");
  const Resolution wins = resolve(with, args, {});
  EXPECT_EQ(wins.config.scheduler.type, "WarmupLR");
  EXPECT_EQ(count(wins, Severity::Warning, "training.lrSchedulerType"), 1);
  args.lr_scheduler_type = "reduce_lr_on_plateau";
  EXPECT_EQ(count(resolve(config, args, {}), Severity::Unsupported, "training.lrSchedulerType"), 1);
  args.lr_scheduler_type = "cosin";
  const Resolution slip = resolve(config, args, {});
  EXPECT_EQ(count(slip, Severity::Error, "training.lrSchedulerType"), 1);
  EXPECT_NE(said(slip).find("did you mean \"cosine\"?"), std::string::npos);
}

TEST(ResolveTest, StepsOfTheRun) {
  const json config = parse(R"({"train_micro_batch_size_per_gpu": 3})");
  TrainingArgs args;
  const Facts facts{.world_size = 2, .dataset_rows = 100};
  EXPECT_EQ(resolve(config, args, facts).config.total_steps, 51);  // ceil(100 / 6) x 3
  args.num_train_epochs = 1.5;
  EXPECT_EQ(resolve(config, args, facts).config.total_steps, 26);  // ceil(17 x 1.5)
  args.max_steps = -1;
  EXPECT_EQ(resolve(config, args, facts).config.total_steps, 26);
  args.max_steps = 5;
  EXPECT_EQ(resolve(config, args, facts).config.total_steps, 5);
  EXPECT_FALSE(resolve(config, {}, {}).complete);
}

/// transformers' rule, by its own numbers: the micro-batches that torch's loader makes, those of one
/// process, accelerate's loader, and from them the updates.
TEST(ResolveTest, StepsAreTrainers) {
  std::mt19937_64 draws(3);
  const auto draw = [&](int64_t most) {
    return 1 + static_cast<int64_t>(draws() % static_cast<uint64_t>(most));
  };
  const auto divided_up = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
  for (int round = 0; round < 300; ++round) {
    const int64_t rows = draw(500), micro = draw(6), accumulation = draw(6), world = draw(6);
    TrainingArgs args;
    args.per_device_train_batch_size = micro;
    args.gradient_accumulation_steps = accumulation;
    args.num_train_epochs = static_cast<double>(draw(40)) / 8;
    const bool drops = rows >= micro * world && draw(3) == 1;
    if (drops) args.dataloader_drop_last = true;
    const auto config =
        resolve(json::object(), args, {.world_size = static_cast<int>(world), .dataset_rows = rows})
            .config;
    const int64_t loaded = drops ? rows / micro : divided_up(rows, micro);
    const int64_t of_one = drops ? loaded / world : divided_up(loaded, world);
    const int64_t updates =
        std::max<int64_t>(of_one / accumulation + (of_one % accumulation > 0 ? 1 : 0), 1);
    EXPECT_EQ(config.steps_per_epoch, updates);
    EXPECT_EQ(config.total_steps, std::ceil(*args.num_train_epochs * static_cast<double>(updates)))
        << rows << " rows";
  }
}

/// Trainer's loader would be empty, and the run end at once.
TEST(ResolveTest, DropLastThatLeavesNothingIsRefused) {
  TrainingArgs args;
  args.per_device_train_batch_size = 4;
  args.gradient_accumulation_steps = 3;
  args.max_steps = 2;
  args.dataloader_drop_last = true;
  const auto resolved = resolve(json::object(), args, {.world_size = 2, .dataset_rows = 7});
  EXPECT_EQ(count(resolved, Severity::Error, "training.dataloaderDropLast"), 1);
  EXPECT_NE(said(resolved).find("7 rows do not fill a micro-batch of every rank (8 rows)"),
            std::string::npos);
  EXPECT_EQ(
      resolve(json::object(), args, {.world_size = 2, .dataset_rows = 8}).config.steps_per_epoch,
      1);
}

TEST(ResolveTest, APackedRowCountsAsOne) {
  const json config = parse(R"({"train_micro_batch_size_per_gpu": 3})");
  TrainingArgs args;
  args.packing = true;
  Facts facts{.world_size = 2, .dataset_rows = 100, .packed_rows = 25};
  EXPECT_EQ(resolve(config, args, facts).config.total_steps, 15);  // ceil(25 / 6) x 3
  args.validation_split_percentage = 10;
  args.eval_on_start = true;
  EXPECT_EQ(resolve(config, args, facts).config.eval.split_rows, 10) << "rows, not packs";
  facts.packed_rows.reset();
  EXPECT_FALSE(resolve(config, args, facts).complete) << "what the packs are is not known";
  args.packing = false;
  EXPECT_EQ(resolve(config, args, facts).config.total_steps, 45);  // ceil(90 / 6) x 3
}

TEST(ResolveTest, GroupsOfOneLengthNeedARandomOrder) {
  const json config = parse(R"({"train_micro_batch_size_per_gpu": 3})");
  TrainingArgs args;
  args.max_steps = 1;
  args.group_by_length = true;
  EXPECT_TRUE(resolve(config, args, {}).runnable());
  args.shuffle = false;
  EXPECT_EQ(count(resolve(config, args, {}), Severity::Error, "training.groupByLength"), 1);
}

TEST(ResolveTest, TargetsThatContradictEachOtherAreRefused) {
  const auto refused = [](const std::function<void(TrainingArgs&)>& change, const char* path) {
    TrainingArgs args;
    args.max_steps = 1;
    change(args);
    return count(resolve(json::object(), args, {}), Severity::Error, path);
  };
  const char* const history = "training.maskHistory";
  EXPECT_EQ(refused([](TrainingArgs& args) { args.mask_history = true; }, history), 0);
  EXPECT_EQ(
      refused([](TrainingArgs& args) { args.mask_history = args.train_on_inputs = true; }, history),
      1);
  EXPECT_EQ(refused([](TrainingArgs& args) { args.train_on_eos = "never"; }, "training.trainOnEos"),
            1);
  EXPECT_EQ(refused([](TrainingArgs& args) { args.train_on_eos = "all"; }, "training.trainOnEos"),
            0);
  EXPECT_EQ(refused([](TrainingArgs& args) { args.chat_date = "26 Jul"; }, "training.chatDate"), 1);
  EXPECT_EQ(refused([](TrainingArgs& args) { args.chat_date = "2024-07-26"; }, "training.chatDate"),
            0);
}

TEST(ResolveTest, ToJsonHoldsEveryDecision) {
  const json written = to_json(
      resolve(parse(kGuideLike), guide_args(), {.world_size = 2, .hidden_size = 64}).config);
  EXPECT_EQ(written["train_batch_size"], 16);
  EXPECT_EQ(written["precision"], "bf16");
  EXPECT_EQ(written["zero_optimization"]["reduce_bucket_size"], 4096);
  EXPECT_EQ(written["scheduler"]["type"], "WarmupDecayLR");
  EXPECT_EQ(written.dump().find("auto"), std::string::npos);
}

}  // namespace
}  // namespace dsj::dsconfig
