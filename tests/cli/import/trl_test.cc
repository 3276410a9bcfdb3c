// Lines of TRL's documentation. Expected values are those of TRL 1.16's own configuration classes.
#include "cli/import/trl.h"

#include <algorithm>

#include "cli/import/launcher.h"
#include "tests/cli/import/support.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

std::vector<std::string> words_of(const std::string& line) {
  const auto script = read_script(line + "\n", "line");
  EXPECT_TRUE(script) << line;
  return script->commands.at(0).words;
}

Result<Imported> import_trl(Folder& folder, const std::string& line) {
  return import_line(folder.files, words_of(line), Launcher::Trl, "line");
}

TEST(ImportTrl, ALineOfTheDocumentation) {
  Folder folder;
  const auto imported =
      import_trl(folder,
                 "trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name stanfordnlp/imdb "
                 "--no_remove_unused_columns --gradient_accumulation_steps 8 --num_processes 4");
  ASSERT_TRUE(imported) << imported.error().to_string();
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["workers"], (json{{"replicas", 1}, {"slotsPerWorker", 4}}));
  EXPECT_EQ(spec["training"], (json{{"modelNameOrPath", "Qwen/Qwen2.5-0.5B"},
                                    {"gradientAccumulationSteps", 8},
                                    {"learningRate", 2e-5},
                                    {"maxSeqLength", 1024},
                                    {"loggingSteps", 10},
                                    {"gradientCheckpointing", true},
                                    {"bf16", true}}));
  EXPECT_EQ(spec["deepspeed"]["config"]["zero_optimization"]["stage"], 0);
  ASSERT_EQ(imported->missing.size(), 1u);
  EXPECT_NE(imported->missing[0].message.find("data set of the hub"), std::string::npos);
  EXPECT_TRUE(any_contains(imported->left_open, "TRL's defaults: learningRate 2e-05"));
}

TEST(ImportTrl, WhatTheLineSaysIsKept) {
  Folder folder;
  const auto imported = import_trl(
      folder,
      "trl dpo --model_name_or_path m --data_path d.jsonl --learning_rate 5e-7 --max_length 2048 "
      "--logging_steps 1 --no_gradient_checkpointing --fp16 --beta 0.2 --num_processes=2");
  ASSERT_TRUE(imported) << imported.error().to_string();
  const json& training = imported->manifest["spec"]["training"];
  EXPECT_EQ(training["objective"], "dpo");
  EXPECT_EQ(training["learningRate"], 5e-7);
  EXPECT_EQ(training["maxSeqLength"], 2048);
  EXPECT_EQ(training["gradientCheckpointing"], false);
  EXPECT_EQ(training["beta"], 0.2);
  EXPECT_FALSE(training.contains("bf16"));
  EXPECT_TRUE(imported->missing.empty());
}

/// A file of TRL's examples, with accelerate's settings inside as in the documentation.
TEST(ImportTrl, AConfigFileMayHoldAcceleratesSettings) {
  Folder folder;
  folder.add(
      "/sft.yaml",
      "model_name_or_path:\n  Qwen/Qwen2.5-0.5B\ndata_path: rows.jsonl\nlearning_rate:\n"
      "  0.0001\nlr_scheduler_type:\n  cosine\nnum_processes: 4\naccelerate_config: zero3\n");
  const auto imported = import_trl(folder, "trl sft --config /sft.yaml --output_dir out");
  ASSERT_TRUE(imported) << imported.error().to_string();
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["workers"]["slotsPerWorker"], 4) << "the file's own number, not zero3's 8";
  EXPECT_EQ(spec["deepspeed"]["config"]["zero_optimization"]["stage"], 3);
  EXPECT_EQ(spec["training"]["learningRate"], 1e-4);
  EXPECT_EQ(spec["training"]["outputDir"], "out");
  EXPECT_TRUE(imported->missing.empty());
}

TEST(ImportTrl, AcceleratesSettingsByNameOrFile) {
  for (const auto& [name, ranks, stage] :
       {std::tuple{"single_gpu", 1, 0}, {"multi_gpu", 8, 0}, {"zero1", 8, 1}, {"zero2", 8, 2}}) {
    Folder folder;
    const auto imported =
        import_trl(folder, std::string("trl sft --model_name_or_path m --data_path d "
                                       "--accelerate_config ") +
                               name);
    ASSERT_TRUE(imported) << imported.error().to_string();
    const json& spec = imported->manifest["spec"];
    EXPECT_EQ(spec["workers"]["slotsPerWorker"], ranks) << name;
    EXPECT_EQ(spec["deepspeed"]["config"]["zero_optimization"]["stage"], stage) << name;
  }
  Folder folder;
  folder.add("/acc.yaml",
             "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n"
             "  zero_stage: 2\n");
  const auto file = import_trl(
      folder, "trl sft --model_name_or_path m --data_path d --accelerate_config /acc.yaml");
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->manifest["spec"]["workers"]["slotsPerWorker"], 2);
  const auto fsdp =
      import_trl(folder, "trl sft --model_name_or_path m --data_path d --accelerate_config fsdp2");
  ASSERT_TRUE(fsdp) << fsdp.error().to_string();
  EXPECT_EQ(fsdp->manifest["spec"]["deepspeed"]["config"]["zero_optimization"]["stage"], 3);
  EXPECT_FALSE(import_trl(folder, "trl sft --accelerate_config zero9"));
}

TEST(ImportTrl, WhatIsNotBuiltIsRefusedByName) {
  Folder folder;
  for (const char* command : {"grpo", "rloo"}) {
    const auto imported = import_trl(folder, std::string("trl ") + command + " --num_processes 1");
    ASSERT_FALSE(imported);
    EXPECT_NE(imported.error().message.find(std::string("the method ") + command),
              std::string::npos);
  }
  EXPECT_FALSE(import_trl(folder, "trl vllm-serve --model m"));
  EXPECT_FALSE(import_trl(folder, "trl --version"));
  EXPECT_FALSE(import_trl(folder, "trl sft --num_processes"));
}

/// A line without arguments of the script, found by the fuzz target.
TEST(ImportTrl, ALineWithoutArgumentsAsksForThem) {
  Folder folder;
  for (const auto& [line, launcher] :
       {std::pair{"torchrun --nnodes=1:2 train.py", Launcher::Torchrun},
        {"accelerate launch --num_processes 2 t.py", Launcher::Accelerate},
        {"accelerate launch --num_processes 2 --mixed_precision bf16 t.py", Launcher::Accelerate},
        {"deepspeed dpo.py", Launcher::DeepSpeed},
        {"trl sft", Launcher::Trl}}) {
    const auto imported = import_line(folder.files, words_of(line), launcher, "line");
    ASSERT_TRUE(imported) << line << ": " << imported.error().to_string();
    EXPECT_GE(imported->missing.size(), 2u) << line;
  }
}

/// A preference script must not silently become supervised fine-tuning.
TEST(ImportTrl, AScriptUnderAnotherLauncherNamesItsObjective) {
  Folder folder;
  const auto import_accelerate = [&](const std::string& script) {
    return import_line(folder.files,
                       words_of("accelerate launch --num_processes 2 " + script +
                                " --model_name_or_path m --data_path d"),
                       Launcher::Accelerate, "line");
  };
  const auto own = import_accelerate("trl/scripts/dpo.py");
  ASSERT_TRUE(own) << own.error().to_string();
  EXPECT_EQ(own->manifest["spec"]["training"]["objective"], "dpo");
  EXPECT_EQ(own->manifest["spec"]["training"]["learningRate"], 1e-6);
  const auto other = import_accelerate("recipes/orpo.py");
  ASSERT_TRUE(other) << other.error().to_string();
  EXPECT_EQ(other->manifest["spec"]["training"]["objective"], "orpo");
  EXPECT_FALSE(other->manifest["spec"]["training"].contains("learningRate"))
      << "it may not be TRL's trainer";
  EXPECT_TRUE(any_contains(other->left_open, "from the script's name orpo.py"));
  const auto sft = import_accelerate("train_sft.py");
  ASSERT_TRUE(sft);
  EXPECT_FALSE(sft->manifest["spec"]["training"].contains("objective"));
  const auto grpo = import_accelerate("examples/scripts/grpo.py");
  ASSERT_FALSE(grpo);
}

}  // namespace
}  // namespace dsj::jobimport
