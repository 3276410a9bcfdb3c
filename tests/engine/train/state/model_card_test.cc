#include "engine/train/state/model_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsj::train {
namespace {

using testing::HasSubstr;
using testing::Not;

Inputs inputs_of_a_card() {
  Inputs in;
  in.job.output_dir = "/home/me/secret/runs/tuned";
  in.job.training.model_name_or_path = "/home/me/secret/models/Qwen2.5-0.5B";
  in.job.training.data_path = "/home/me/secret/data/alpaca.jsonl.gz,/x/train/*.parquet";
  auto& config = in.resolution.config;
  config.total_steps = 300;
  config.steps_per_epoch = 100;
  config.micro_batch_size = 4;
  config.gradient_accumulation_steps = 2;
  config.train_batch_size = 16;
  config.optimizer.lr = 2e-5;
  config.scheduler.type = "cosine";
  config.scheduler.warmup_steps = 9;
  return in;
}

const Version kCardVersion{.release = "0.9.0", .libtorch = "2.11.0"};

TEST(ModelCard, HasTheFrontMatterThatTheHubReads) {
  const std::string card =
      model_card(inputs_of_a_card(), {.step = 300, .loss = 1.25}, 2, kCardVersion);
  EXPECT_THAT(card, testing::StartsWith("---\nlibrary_name: transformers\n"
                                        "base_model: \"Qwen2.5-0.5B\"\n"
                                        "pipeline_tag: text-generation\n"
                                        "datasets:\n- \"alpaca\"\n- \"train\"\n"
                                        "tags:\n- generated_from_trainer\n- deepspeedjob\n- sft\n"
                                        "model-index:\n- name: \"tuned\"\n  results: []\n---\n"));
}

TEST(ModelCard, SaysWhatTheRunDidAndSaw) {
  const std::string card = model_card(inputs_of_a_card(),
                                      {.step = 300,
                                       .loss = 1.25,
                                       .eval_loss = 1.5,
                                       .eval_step = 200,
                                       .eval_metrics = {{"rewards/margins", 0.5}}},
                                      2, kCardVersion);
  for (const char* line :
       {"| steps | 300 of 300 |", "| epochs | 3 |", "| training loss of the last step | 1.25 |",
        "| eval_loss after step 200 | 1.5 |", "| eval_rewards/margins after step 200 | 0.5 |",
        "- learning_rate: 2e-05", "- train_batch_size: 4", "- num_devices: 2",
        "- gradient_accumulation_steps: 2", "- total_train_batch_size: 16",
        "- lr_scheduler_type: cosine", "- lr_scheduler_warmup_steps: 9", "- seed: 42",
        "- optimizer: AdamW with {", "- DeepSpeedJob 0.9.0", "- libtorch 2.11.0"})
    EXPECT_THAT(card, HasSubstr(line));
}

TEST(ModelCard, NamesNoDirectories) {
  const std::string card = model_card(inputs_of_a_card(), {.step = 3}, 1, kCardVersion);
  EXPECT_THAT(card, Not(HasSubstr("secret")));
  EXPECT_THAT(card, Not(HasSubstr("training loss"))) << "not known";
}

TEST(ModelCard, OfAdaptersAndOfAnObjective) {
  Inputs in = inputs_of_a_card();
  in.lora = LoraArgs{.r = 4};
  in.objective.kind = dsconfig::Objective::Kind::Kto;
  in.job.training.dataset = "one,two";
  const std::string card = model_card(in, {.step = 3}, 1, kCardVersion);
  for (const char* line :
       {"library_name: peft\n", "- kto\n- lora\n- transformers\n",
        "- \"base_model:adapter:Qwen2.5-0.5B\"\n", "datasets:\n- \"one\"\n- \"two\"\n",
        "- objective: kto\n", "- beta: 0.1\n", "- undesirable_weight: 1\n",
        "LoRA adapters for Qwen2.5-0.5B, trained on one, two", "- lora: {"})
    EXPECT_THAT(card, HasSubstr(line));
}

/// Whatever a directory is called, the front matter is YAML of one string each.
TEST(ModelCard, NamesAreQuoted) {
  Inputs in = inputs_of_a_card();
  in.job.training.model_name_or_path = "/m/a \"b\": #c\n- d";
  EXPECT_THAT(model_card(in, {}, 1, kCardVersion),
              HasSubstr("base_model: \"a \\\"b\\\": #c\\n- d\"\n"));
}

TEST(ModelCard, ASnapshotOfTheHubsCacheIsItsId) {
  EXPECT_EQ(base_model_name("/c/hub/models--Qwen--Qwen2.5-0.5B/snapshots/0123abc"),
            "Qwen/Qwen2.5-0.5B");
  EXPECT_EQ(base_model_name("/c/hub/models--gpt2/snapshots/0123abc/"), "gpt2");
  EXPECT_EQ(base_model_name("./gpt2/"), "gpt2");
}

}  // namespace
}  // namespace dsj::train
