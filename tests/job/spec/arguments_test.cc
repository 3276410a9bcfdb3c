#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "job/argument_table.h"
#include "job/spec/job.h"

namespace dsj::jobspec {
namespace {

namespace fs = std::filesystem;

class ArgumentsTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              ("dsj-arguments-test-" + std::to_string(getpid()) + info->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "model");
    std::ofstream(folder_ / "ds.json") << R"({"train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}})";
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<Job> parse(const std::string& line, const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> args;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      for (const auto& [mark, name] : {std::pair{"@model", "model"}, std::pair{"@ds", "ds.json"}})
        if (const size_t at = word.find(mark); at != std::string::npos)
          word.replace(at, std::string(mark).size(), (folder_ / name).string());
      args.push_back(word);
    }
    return job_from_arguments(args, overrides);
  }

  /// The same argument in spec.training.
  void in_a_manifest(const ArgumentRow& row, const std::string& value) {
    using Severity = dsconfig::Finding::Severity;
    if (row.verdict == ArgumentVerdict::Taken) return;  // tests/job/training_args_test.cc
    dsconfig::Document document{.source = "job"};
    document.value = {{"apiVersion", kApiVersion},
                      {"kind", kKind},
                      {"metadata", {{"name", "n"}}},
                      {"spec",
                       {{"deepspeed", {{"config", {{"train_batch_size", 1}}}}},
                        {"training",
                         {{"modelNameOrPath", "/m"},
                          {"dataPath", "/d"},
                          {"outputDir", "/o"},
                          {camel_case(row.name), value}}}}}};
    const auto job = read_manifest(document, ".", {});
    ASSERT_TRUE(job) << job.error().to_string();
    ASSERT_EQ(job->findings.size(), 1u);
    const bool refused = row.verdict == ArgumentVerdict::Refused && !asks_for_nothing(row, value);
    EXPECT_EQ(job->findings[0].severity, refused ? Severity::Unsupported : Severity::Warning);
    EXPECT_EQ(job->findings[0].path, "spec.training." + camel_case(row.name));
  }

  fs::path folder_;
};

const char* kLine = "--deepspeed @ds --model_name_or_path @model --data_path /d --output_dir /o ";

TEST_F(ArgumentsTest, TheLineDeepSpeedsUsersType) {
  const auto job = parse(
      "--nproc_per_node=2 --deepspeed @ds --model_name_or_path @model --data_path /d/alpaca.json "
      "--bf16 True --output_dir /out/Run_7 --max_steps 2000 --per_device_train_batch_size 1 "
      "--evaluation_strategy no --save_strategy steps --save_steps 3000 --save_total_limit 1 "
      "--learning_rate 1e-6 --weight_decay 0. --warmup_ratio 0.03 --lr_scheduler_type cosine "
      "--seed 1234 --logging_steps 1");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_TRUE(job->findings.empty());
  EXPECT_EQ(job->name, "run-7");
  EXPECT_EQ(job->world_size(), 2);
  EXPECT_EQ(job->training.model_name_or_path, (folder_ / "model").string());
  EXPECT_EQ(job->training.data_path, "/d/alpaca.json");
  EXPECT_EQ(*job->training.max_steps, 2000);
  EXPECT_EQ(*job->training.save_steps, 3000);
  EXPECT_DOUBLE_EQ(*job->training.learning_rate, 1e-6);
  EXPECT_DOUBLE_EQ(*job->training.weight_decay, 0.0);
  EXPECT_TRUE(*job->training.bf16);
  EXPECT_EQ(*job->training.seed, 1234);
  const auto resolution = resolve(*job, {});
  EXPECT_TRUE(resolution.runnable());
  EXPECT_EQ(resolution.config.train_batch_size, 2);
  EXPECT_EQ(resolution.config.scheduler.type, "cosine");
  EXPECT_EQ(resolution.config.scheduler.warmup_steps, 60);
}

TEST_F(ArgumentsTest, DashesUnderscoresEqualsAndSwitches) {
  const auto job = parse(
      "--nproc-per-node 2 --deepspeed=@ds --model-name-or-path=@model --data-path=/d "
      "--output-dir=/o --bf16 --gradient-checkpointing --shuffle False --max-steps=-1 "
      "--model_max_length 512 --eval_strategy no --packing --group_by_length True "
      "--packing_strategy bfd_split --eval_packing False");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_TRUE(*job->training.bf16);
  EXPECT_TRUE(*job->training.gradient_checkpointing);
  EXPECT_FALSE(*job->training.shuffle);
  EXPECT_TRUE(*job->training.packing && *job->training.group_by_length);
  EXPECT_EQ(*job->training.packing_strategy, "bfd_split");
  EXPECT_EQ(*job->training.max_steps, -1);
  EXPECT_EQ(*job->training.max_seq_length, 512);
  EXPECT_EQ(*job->training.evaluation_strategy, "no");
}

/// What lines of other scripts have: taken under our name, or refused with what to write instead.
TEST_F(ArgumentsTest, NamesOfOtherScriptsAreTakenOrSayWhatToWrite) {
  const std::string base = "--deepspeed @ds --model_name_or_path @model --output_dir /o ";
  const auto factory = parse(base +
                             "--data_path /d --finetuning_type lora --lora_rank 4 --lora_target "
                             "all --cutoff_len 64 --dataloader_drop_last True");
  ASSERT_TRUE(factory) << factory.error().to_string();
  ASSERT_TRUE(factory->training.lora);
  EXPECT_EQ(factory->training.lora->r, 4);
  EXPECT_EQ(to_json(*factory->training.lora)["targetModules"], "all-linear");
  EXPECT_EQ(*factory->training.max_seq_length, 64);
  EXPECT_TRUE(*factory->training.dataloader_drop_last);
  const auto clm = parse(base + "--train_file /d --validation_file /e --num_warmup_steps 3");
  ASSERT_TRUE(clm) << clm.error().to_string();
  EXPECT_EQ(clm->training.data_path, "/d");
  EXPECT_EQ(*clm->training.eval_data_path, "/e");
  EXPECT_EQ(*clm->training.warmup_steps, 3);
  const auto trl = parse(base + "--data_path /d --dataset_text_field content");
  ASSERT_TRUE(trl) << trl.error().to_string();
  EXPECT_EQ(*trl->training.dataset_columns, nlohmann::json({{"text", "content"}}));
  const auto usual = parse(base + "--data_path /d --dataset_text_field text");
  ASSERT_TRUE(usual) << usual.error().to_string();
  EXPECT_EQ(*usual->training.dataset_columns, nlohmann::json({{"text", "text"}}));
  EXPECT_FALSE(
      parse(base + "--data_path /d --dataset_text_field a --dataset_columns {\"text\":\"b\"}"));
  const auto several = parse(base +
                             "--dataset_dir /data --dataset a,b --max_samples 9 --val_set_size 0.1 "
                             "--interleave_probs 1,2 --truncation_mode keep_end "
                             "--mix_strategy interleave_under --dataset_columns {\"text\":\"t\"}");
  ASSERT_TRUE(several) << several.error().to_string();
  EXPECT_EQ(several->training.data_path, "/data");
  EXPECT_EQ(several->training.dataset, "a,b");
  EXPECT_EQ(several->training.max_samples, 9);
  EXPECT_EQ(several->training.val_size, 0.1);
  EXPECT_EQ(several->training.dataset_weights, "1,2");
  EXPECT_EQ(several->training.truncation_side, "left");
  EXPECT_EQ(several->training.mix_strategy, "interleave_under");
  EXPECT_EQ((*several->training.dataset_columns)["text"], "t");
  for (const auto& [argument, advice] : std::map<std::string, std::string>{
           {"--dataset_name tatsu-lab/alpaca", "write --data_path FILE"},
           {"--template qwen", "write --chat_template"},
           {"--block_size 200", "--packing"},
           {"--zero_stage 3", "into the ds_config"},
           {"--include localhost:0,1", "write --num_gpus"}}) {
    const auto job = parse(base + "--data_path /d " + argument);
    ASSERT_FALSE(job) << argument;
    EXPECT_NE(job.error().to_string().find(advice), std::string::npos) << job.error().to_string();
  }
}

/// As Hugging Face's Trainer takes it: a pod's arguments need no file.
TEST_F(ArgumentsTest, TheDsConfigMayBeTheValueItself) {
  const std::string rest = " --model_name_or_path @model --data_path /d --output_dir /o";
  const auto job =
      parse("--deepspeed={\"train_batch_size\":4,\"bf16\":{\"enabled\":\"auto\"}}" + rest);
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_TRUE(job->ds_config_inline);
  EXPECT_EQ(job->ds_config["train_batch_size"], 4);
  const auto broken = parse("--deepspeed={\"train_batch_size\":}" + rest);
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().to_string().find("not JSON"), std::string::npos);
}

/// Where each machine of several is concerns `dsj run` alone (cli/run/run_nodes.h).
TEST_F(ArgumentsTest, NodesAreWorkersOnMachinesOfTheirOwn) {
  const auto job = parse(std::string(kLine) +
                         "--nnodes=2:2 --nproc_per_node=4 --node-rank 1 "
                         "--master_addr n0 --master-port=29500");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_TRUE(job->findings.empty());
  EXPECT_EQ(job->replicas, 2);
  EXPECT_EQ(job->slots_per_worker, 4);
  EXPECT_TRUE(job->written.contains("spec.workers.replicas"));
  EXPECT_FALSE(parse(std::string(kLine))->written.contains("spec.workers.replicas"));
}

/// Which words are the line's, and which are slips of a verb's own options.
TEST_F(ArgumentsTest, WordsOfALineAreKnown) {
  for (const char* word : {"--learning_rate", "--learning-rate", "--nproc_per_node", "--lora_r",
                           "--use_lora", "--do_train", "--deepspeed", "--dataset"})
    EXPECT_TRUE(is_line_argument(word)) << word;
  for (const char* word : {"--strct", "--outptu", "learning_rate", "-o"})
    EXPECT_FALSE(is_line_argument(word)) << word;
}

/// Findings name the argument as it was written, and advise arguments instead of the manifest's fields.
TEST_F(ArgumentsTest, FindingsSpeakOfArguments) {
  const std::string base =
      "--deepspeed @ds --model_name_or_path @model --data_path /d --output_dir /o ";
  struct Case {
    std::string argument, starts, ends;
  };
  for (const Case& one : {
           Case{"--eval_strategy steps", "command line: error: --eval_strategy: ",
                "(give --eval_data_path, --eval_dataset, --val_size or "
                "--validation_split_percentage)"},
           Case{"--evaluation-strategy steps", "command line: error: --evaluation-strategy: ",
                "(give --eval_data_path, --eval_dataset, --val_size or "
                "--validation_split_percentage)"},
           Case{"--per_gpu_train_batch_size -1",
                "command line: error: --per_gpu_train_batch_size: ",
                "found -1, expected at least 1"},
           Case{"--cutoff_len 0", "command line: error: --cutoff_len: ", "expected at least 2"},
       }) {
    const auto job = parse(base + one.argument);
    ASSERT_TRUE(job) << one.argument << job.error().to_string();
    const auto resolution = resolve(*job, {});
    std::string found;
    for (const auto& finding : resolution.findings)
      if (const std::string line = to_line(*job, finding); line.starts_with(one.starts))
        found = line;
    EXPECT_TRUE(found.ends_with(one.ends)) << one.argument << ": " << found;
  }
}

/// A line of another program is refused once, with everything that has to change.
TEST_F(ArgumentsTest, EveryRefusedArgumentIsNamedAtOnce) {
  const auto job = parse(
      "torchrun --nproc_per_node=2 -m finetune --deepspeed @ds --model_name_or_path @model "
      "--data_path /d --output_dir /o --lora_enable True --learning_rte 1 --max_steps x");
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().message,
            "5 arguments are not accepted\n"
            "  torchrun: the agent starts the ranks (remove it: dsj replaces it)\n"
            "  -m: a Python script is not run here (leave it out: the engine trains by itself)\n"
            "  --lora_enable: not an argument of dsj run (docs/arguments.md lists them)\n"
            "  --learning_rte: not an argument of dsj run (did you mean \"--learning_rate\"?)\n"
            "  --max_steps: found \"x\", expected a whole number");
}

/// DeepSpeed's own examples: a switch, and the file under another name.
TEST_F(ArgumentsTest, DeepSpeedMayBeASwitch) {
  const auto job = parse(
      "--deepspeed --deepspeed_config @ds --model_name_or_path @model --data_path /d --output_dir "
      "/o");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->ds_config.value("train_micro_batch_size_per_gpu", ""), "auto");
  const auto none = parse("--deepspeed --model_name_or_path @model --data_path /d --output_dir /o");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().to_string(),
            "--deepspeed: a value is missing (write --deepspeed ds_config.json)");
}

TEST_F(ArgumentsTest, TargetsByTheNamesOfOtherTrainers) {
  const std::string line =
      "--deepspeed @ds --model_name_or_path @model --data_path /d --output_dir /o ";
  const auto job = parse(line +
                         "--train_on_inputs False --mask_history True --train_on_eos last "
                         "--assistant_only_loss True --completion_only_loss True "
                         "--chat_date 2024-07-26");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->training.train_on_inputs, false);
  EXPECT_EQ(job->training.mask_history, true);
  EXPECT_EQ(job->training.train_on_eos, "last");
  EXPECT_EQ(job->training.chat_date, "2024-07-26");
  EXPECT_TRUE(job->findings.empty());
  for (const char* all : {"--train_on_inputs", "--train_on_prompt True",
                          "--assistant_only_loss False", "--completion_only_loss False"}) {
    const auto every = parse(line + all);
    ASSERT_TRUE(every) << all << every.error().to_string();
    EXPECT_EQ(every->training.train_on_inputs, true) << all;
  }
}

TEST_F(ArgumentsTest, WhatBecomesOfAnEarlierRunIsAnArgument) {
  const auto job = parse(
      "--deepspeed @ds --model_name_or_path @model --data_path /d --output_dir /o "
      "--overwrite_output_dir --ignore-data-skip True");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_TRUE(*job->training.overwrite_output_dir && *job->training.ignore_data_skip);
  EXPECT_TRUE(job->findings.empty());
}

TEST_F(ArgumentsTest, ATildeInAPathIsRefusedWithWhatToWrite) {
  ASSERT_EQ(setenv("HOME", "/home/ada", 1), 0);
  for (const char* argument : {"--model_name_or_path", "--data_path", "--output_dir",
                               "--eval_data_path", "--resume_from_checkpoint", "--deepspeed"}) {
    std::string line;
    for (const char* given :
         {"--deepspeed @ds", "--model_name_or_path @model", "--data_path /d", "--output_dir /o"})
      if (!std::string(given).starts_with(std::string(argument) + " "))
        line += std::string(given) + " ";
    const auto job = parse(line + argument + "=~/x");
    ASSERT_TRUE(job) << argument << ": " << job.error().to_string();
    const auto found = std::ranges::find(job->findings, "\"~/x\": ~ is not expanded here",
                                         &dsconfig::Finding::message);
    ASSERT_NE(found, job->findings.end()) << argument;
    EXPECT_EQ(found->severity, dsconfig::Finding::Severity::Error) << argument;
    EXPECT_EQ(found->hint, "write /home/ada/x") << argument;
  }
}

TEST_F(ArgumentsTest, WhatDoesNotMatterIsSaid) {
  const auto job = parse(std::string(kLine) +
                         "--ddp_timeout 1800 --dataloader_num_workers 4 --tf32 "
                         "True --torch_dtype bfloat16 --lazy_preprocess True --do_train");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(job->findings.size(), 6u);
  for (const auto& finding : job->findings) {
    EXPECT_EQ(finding.severity, dsconfig::Finding::Severity::Warning);
    EXPECT_EQ(finding.message, "no effect");
    EXPECT_FALSE(finding.hint.empty()) << finding.path;
  }
}

/// argparse's rule. What is said names the argument.
TEST_F(ArgumentsTest, TheLastOfTwoCounts) {
  const auto job =
      parse(std::string(kLine) + "--max_steps 1 --seed 3 --max-steps 2 --bf16 --bf16 False");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(*job->training.max_steps, 2);
  EXPECT_FALSE(*job->training.bf16);
  ASSERT_EQ(job->findings.size(), 2u);
  for (const auto& finding : job->findings) {
    EXPECT_EQ(finding.severity, dsconfig::Finding::Severity::Warning);
    EXPECT_EQ(finding.message, "given twice");
  }
  EXPECT_EQ(job->findings[0].path, "--max-steps");
}

TEST_F(ArgumentsTest, OtherNamesAndWords) {
  const auto job = parse(std::string(kLine) +
                         "--per_gpu_train_batch_size 3 --activation_checkpointing --no_cuda "
                         "--train_sampling_strategy group_by_length --report_to tensorboard wandb "
                         "--cutoff_len 64 --bf16 --bf16_full_eval True --nproc_per_node cpu "
                         "--save_steps 0.5 --warmup_steps 0.1");
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(*job->training.per_device_train_batch_size, 3);
  EXPECT_TRUE(*job->training.gradient_checkpointing);
  EXPECT_EQ(*job->training.device, "cpu");
  EXPECT_TRUE(*job->training.group_by_length);
  EXPECT_EQ(*job->training.report_to, "tensorboard,wandb");
  EXPECT_EQ(*job->training.max_seq_length, 64);
  EXPECT_TRUE(*job->training.bf16);
  EXPECT_GE(job->world_size(), 1);
  EXPECT_EQ(*job->training.save_steps, 0.5);
  EXPECT_EQ(*job->training.warmup_steps, 0.1);
}

TEST_F(ArgumentsTest, OtherNamesInAManifest) {
  const auto read = [](const nlohmann::json& more) {
    dsconfig::Document document{.source = "job"};
    document.value = {
        {"apiVersion", kApiVersion},
        {"kind", kKind},
        {"metadata", {{"name", "n"}}},
        {"spec",
         {{"deepspeed", {{"config", {{"train_batch_size", 1}}}}},
          {"training", {{"modelNameOrPath", "/m"}, {"dataPath", "/d"}, {"outputDir", "/o"}}}}}};
    document.value["spec"]["training"].update(more);
    return read_manifest(document, ".", {});
  };
  const auto job = read({{"bf16", true},
                         {"bf16FullEval", true},
                         {"useCpu", true},
                         {"perGpuTrainBatchSize", 3},
                         {"trainSamplingStrategy", "sequential"}});
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_TRUE(job->findings.empty());
  EXPECT_TRUE(*job->training.bf16);
  EXPECT_EQ(*job->training.device, "cpu");
  EXPECT_EQ(*job->training.per_device_train_batch_size, 3);
  EXPECT_FALSE(*job->training.shuffle);
  const auto both = read({{"bf16", false}, {"bf16FullEval", true}});
  ASSERT_TRUE(both) << both.error().to_string();
  ASSERT_EQ(both->findings.size(), 1u);
  EXPECT_EQ(both->findings[0].severity, dsconfig::Finding::Severity::Error);
  EXPECT_EQ(both->findings[0].path, "spec.training.bf16FullEval");
}

/// Every row of the table with drawn values: its verdict is what happens, on a line and in a manifest.
TEST_F(ArgumentsTest, EveryRowIsWhatHappens) {
  std::mt19937 random(114);
  const std::vector<std::string> values = {"True", "False", "0", "0.1", "3", "none", "x", "{}"};
  int taken = 0, warned = 0, refused = 0;
  for (const ArgumentGroup& group : argument_groups()) {
    for (const ArgumentRow& row : group.rows) {
      if (row.name == "output_dir" || row.name == "data_path" || row.name == "model_name_or_path" ||
          row.name == "deepspeed")
        continue;  // of kLine
      for (int draw = 0; draw < 4; ++draw) {
        const std::string value = values[random() % values.size()];
        const std::string flag = "--" + std::string(row.name);
        const auto job = parse(std::string(kLine) + flag + " " + value);
        const std::string said = job ? "" : job.error().to_string();
        SCOPED_TRACE(flag + " " + value + ": " + said);
        EXPECT_EQ(said.find("not an argument"), std::string::npos);
        const bool neutral = asks_for_nothing(row, value);
        if (row.verdict == ArgumentVerdict::Taken) {
          if (job) {
            for (const auto& finding : job->findings)
              EXPECT_TRUE(finding.path != flag || row.name.starts_with("lora_") ||
                          finding.hint.contains("--load_in_4bit") ||
                          finding.message.contains("--load_in_4bit"))
                  << "a setting of what is off";
          } else {
            EXPECT_TRUE(said.starts_with(flag)) << "a value that it does not take";
          }
          ++taken;
        } else if (row.verdict == ArgumentVerdict::NoEffect || neutral) {
          ASSERT_TRUE(job);
          ASSERT_EQ(job->findings.size(), 1u);
          EXPECT_EQ(job->findings[0].path, flag);
          EXPECT_EQ(job->findings[0].message, "no effect");
          ++warned;
        } else {
          ASSERT_FALSE(job);
          EXPECT_NE(said.find(row.reason), std::string::npos);
          ++refused;
        }
        in_a_manifest(row, value);
      }
    }
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(warned, 100);
  EXPECT_GT(refused, 50);
}

TEST_F(ArgumentsTest, LoraByItsUsualNames) {
  const auto job = parse(std::string(kLine) +
                         "--use_lora True --lora_r 16 --lora_alpha 32 --lora_dropout 0.05 "
                         "--lora_target_modules q_proj v_proj --lora_modules_to_save lm_head,norm "
                         "--lora_bias none --q_lora False");
  ASSERT_TRUE(job) << job.error().to_string();
  ASSERT_TRUE(job->training.lora);
  const LoraArgs want{.r = 16,
                      .alpha = 32,
                      .dropout = 0.05,
                      .target_modules = {"q_proj", "v_proj"},
                      .modules_to_save = {"lm_head", "norm"}};
  EXPECT_EQ(*job->training.lora, want);
  for (const char* ratio :
       {"--loraplus_lr_ratio 16 --loraplus_lr_embedding 1e-6", "--lorap_lr_ratio=16"}) {
    const auto plus = parse(std::string(kLine) + "--use_lora True " + ratio);
    ASSERT_TRUE(plus) << plus.error().to_string();
    EXPECT_EQ(plus->training.lora->lr_ratio, 16) << ratio;
  }
  const auto all = parse(std::string(kLine) + "--use_lora --lora_target_modules all-linear");
  ASSERT_TRUE(all) << all.error().to_string();
  EXPECT_EQ(all->training.lora->target_pattern, "all-linear");
  for (const char* experts :
       {"--lora_target_parameters mlp.experts.gate_up_proj mlp.experts.down_proj",
        "--target_parameters mlp.experts.gate_up_proj,mlp.experts.down_proj"}) {
    const auto of_experts = parse(std::string(kLine) + "--use_lora " + experts);
    ASSERT_TRUE(of_experts) << of_experts.error().to_string();
    EXPECT_EQ(of_experts->training.lora->target_parameters,
              (std::vector<std::string>{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
  }
  const auto off = parse(std::string(kLine) + "--use_lora False --lora_r 16");
  ASSERT_TRUE(off) << off.error().to_string();
  EXPECT_FALSE(off->training.lora);
  ASSERT_EQ(off->findings.size(), 1u);
  EXPECT_EQ(off->findings[0].path, "--lora_r");
}

/// TRL's, LLaMA-Factory's, QLoRA's and FastChat's names, and what each of them does where nothing is said.
TEST_F(ArgumentsTest, ABaseInFourBitsByItsUsualNames) {
  const std::pair<const char*, bool> lines[] = {
      {"--use_peft --load_in_4bit True", false},
      {"--use_peft --load_in_4bit", false},
      {"--use_peft --load_in_4bit True --bnb_4bit_quant_type nf4 --use_bnb_nested_quant True",
       true},
      {"--load_in_4bit True --bnb_4bit_quant_type nf4 --bnb_4bit_use_double_quant True "
       "--bnb_4bit_compute_dtype bfloat16 --use_peft",
       true},
      {"--finetuning_type lora --quantization_bit 4", true},
      {"--finetuning_type lora --quantization_bit 4 --quantization_method bnb --quantization_type "
       "nf4 --double_quantization False",
       false},
      {"--use_lora True --bits 4", true},
      {"--use_lora True --bits 4 --double_quant False --quant_type nf4", false},
      {"--use_lora True --q_lora True", true}};
  for (const auto& [line, two_levels] : lines) {
    const auto job = parse(std::string(kLine) + line);
    ASSERT_TRUE(job) << line << ": " << job.error().to_string();
    ASSERT_TRUE(job->training.lora) << line;
    EXPECT_TRUE(job->training.lora->load_in_4bit) << line;
    EXPECT_EQ(job->training.lora->double_quant, two_levels) << line;
  }
  for (const char* off : {"--use_peft --load_in_4bit False", "--use_peft --bits 16",
                          "--use_peft --quantization_bit none", "--use_peft --q_lora False"}) {
    const auto job = parse(std::string(kLine) + off);
    ASSERT_TRUE(job) << off << ": " << job.error().to_string();
    EXPECT_FALSE(job->training.lora->load_in_4bit) << off;
  }
  const auto unused = parse(std::string(kLine) + "--bnb_4bit_quant_type nf4");
  ASSERT_TRUE(unused) << unused.error().to_string();
  ASSERT_EQ(unused->findings.size(), 1u);
  EXPECT_EQ(unused->findings[0].path, "--bnb_4bit_quant_type");
}

TEST_F(ArgumentsTest, OverridesApply) {
  const auto job = parse(kLine, {"spec.training.maxSteps=5", "spec.workers.slotsPerWorker=3"});
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_EQ(*job->training.max_steps, 5);
  EXPECT_EQ(job->world_size(), 3);
}

struct BadArgument {
  const char* extra;
  const char* where;
  const char* says;
};

TEST_F(ArgumentsTest, RefusalsNameTheArgument) {
  for (const BadArgument& bad : {
           BadArgument{"--learning_rat 1", "--learning_rat", "did you mean \"--learning_rate\"?"},
           BadArgument{"--per-device-batch-size 1", "--per-device-batch-size", "not an argument"},
           BadArgument{"--model_name m", "--model_name", "did you mean \"--model_name_or_path\"?"},
           BadArgument{"--warmup 1", "--warmup", "docs/arguments.md"},  // begins several
           BadArgument{"--max_steps many", "--max_steps", "expected a whole number"},
           BadArgument{"--max_steps", "--max_steps", "a value is missing"},
           BadArgument{"--model_max_length 1 --max_seq_length 2", "--max", "twice"},
           BadArgument{"--load_in_4bit True", "--load_in_4bit", "add --use_peft True"},
           BadArgument{"--load_in_8bit True", "--load_in_8bit", "LLM.int8()"},
           BadArgument{"--use_peft --quantization_bit 8", "--quantization_bit", "LLM.int8()"},
           BadArgument{"--use_peft --quantization_bit 3", "--quantization_bit", "expected 4"},
           BadArgument{"--use_peft --quantization_bit 4 --quantization_method hqq",
                       "--quantization_method", "bitsandbytes' rule"},
           BadArgument{"--use_peft --load_in_4bit True --bnb_4bit_quant_type fp4",
                       "--bnb_4bit_quant_type", "only \"nf4\""},
           BadArgument{"--use_peft --load_in_4bit True --use_bnb_nested_quant True --double_quant "
                       "False",
                       "--double_quant", "twice"},
           BadArgument{"--label_smoothing_factor much", "--label_smoothing_factor", "a number"},
           BadArgument{"--stage ppo", "--stage", "expected sft, dpo"},
           BadArgument{"--objective dpo --stage pt", "--stage", "twice"},
           BadArgument{"--reference_free True", "--reference_free", "the run starts from"},
           BadArgument{"--pref_ftx 0.5", "--pref_ftx", "not built"},
           BadArgument{"--use_cpu perhaps", "--use_cpu", "expected"},
           BadArgument{"--bf16 False --bf16_full_eval True", "--bf16_full_eval", "twice"},
           BadArgument{"--nproc_per_node many", "--nproc_per_node", "at least 1"},
           BadArgument{"--use_lora maybe", "--use_lora", "true or false"},
           BadArgument{"--use_lora True --lora_r 0", "--lora_r", "at least 1"},
           BadArgument{"--lora_r 8", "--lora_r", "--use_lora True"},
           BadArgument{"--use_lora --lora_bias all", "--lora_bias", "only \"none\""},
           BadArgument{"--q_lora True", "--q_lora", "add --use_peft True"},
           BadArgument{"--use_lora --lora_alfa 8", "--lora_alfa", "did you mean \"--lora_alpha\"?"},
           BadArgument{"--nnodes 1:4", "--nnodes", "spec.elastic"},
           BadArgument{"--nnodes many", "--nnodes", "at least 1"},
           BadArgument{"--num_nodes 2", "--num_nodes", "this machine only"},
           BadArgument{"--node_rank", "--node_rank", "a value is missing"},
           BadArgument{"--nproc_per_node 0", "--nproc_per_node", "at least 1"},
           BadArgument{"finetune.py", "finetune.py", "Python script"},
           BadArgument{"--seed 1 2", "2", "begins with --"},
       }) {
    const auto job = parse(std::string(kLine) + bad.extra);
    ASSERT_FALSE(job) << bad.extra;
    EXPECT_TRUE(job.error().where.starts_with(bad.where)) << job.error().to_string();
    EXPECT_NE(job.error().to_string().find(bad.says), std::string::npos) << job.error().to_string();
  }
  const auto absent = parse("--deepspeed /absent.json --model_name_or_path @model --data_path /d");
  ASSERT_TRUE(absent) << "the line is one; its file is a finding beside the others";
  ASSERT_EQ(absent->findings.size(), 1u);
  EXPECT_TRUE(to_line(*absent, absent->findings[0])
                  .starts_with("command line: error: --deepspeed: /absent.json: "))
      << to_line(*absent, absent->findings[0]);
}

/// The CRD takes numbers and booleans where a line has words.
TEST_F(ArgumentsTest, AManifestOfALineHasTheTypesOfTheCrd) {
  const auto line = manifest_from_arguments({"--nproc_per_node",
                                             "2",
                                             "--deepspeed",
                                             "ds.json",
                                             "--max_steps",
                                             "2000",
                                             "--bf16",
                                             "True",
                                             "--learning_rate",
                                             "1e-6",
                                             "--weight_decay",
                                             "0.",
                                             "--lr_scheduler_type",
                                             "cosine",
                                             "--use_lora",
                                             "True",
                                             "--lora_r",
                                             "4",
                                             "--lora_dropout",
                                             "0.1",
                                             "--lora_target_modules",
                                             "all-linear"},
                                            false);
  ASSERT_TRUE(line) << line.error().to_string();
  const nlohmann::json expected = {
      {"maxSteps", 2000},
      {"bf16", true},
      {"learningRate", 1e-6},
      {"weightDecay", 0.0},
      {"lrSchedulerType", "cosine"},
      {"lora", {{"r", 4}, {"dropout", 0.1}, {"targetModules", "all-linear"}}}};
  EXPECT_EQ(line->manifest["spec"]["training"], expected);
  EXPECT_TRUE(line->manifest["spec"]["training"]["maxSteps"].is_number_integer());
}

/// Each finding names what the user typed: an argument of the line, or a key of the ds_config.
TEST_F(ArgumentsTest, FindingsNameTheArgumentAndNotAFieldOfAManifest) {
  const auto job = parse(
      "--nproc_per_node=2 --deepspeed @ds --model_name_or_path @model --data_path /d --output_dir "
      "/o "
      "--ddp_timeout 1800 --max_steps 10");
  ASSERT_TRUE(job) << job.error().to_string();
  using Severity = dsconfig::Finding::Severity;
  const auto line = [&](const char* path) {
    return to_line(*job, {Severity::Error, path, "is wrong", ""});
  };
  EXPECT_EQ(line("spec.training.maxSteps"), "command line: error: --max_steps: is wrong");
  EXPECT_EQ(line("spec.training.lora.r"), "command line: error: --lora_r: is wrong");
  EXPECT_EQ(line("spec.workers.slotsPerWorker"), "command line: error: --nproc_per_node: is wrong");
  EXPECT_EQ(line("--ddp_timeout"), "command line: error: --ddp_timeout: is wrong");
  EXPECT_EQ(line("spec.unheard"), "command line: error: spec.unheard: is wrong");
  EXPECT_EQ(line("zero_optimization.stage"),
            (folder_ / "ds.json").string() + ": error: zero_optimization.stage: is wrong");
  ASSERT_EQ(job->findings.size(), 1u);
  EXPECT_TRUE(to_line(*job, job->findings[0]).starts_with("command line: warning: --ddp_timeout: "))
      << to_line(*job, job->findings[0]);
}

}  // namespace
}  // namespace dsj::jobspec
