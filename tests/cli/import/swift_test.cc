// Lines and files of ms-swift's documentation and examples. Expected values are those of ms-swift 4.3's
// arguments: its page of command line parameters and swift/config.
#include "cli/import/swift.h"

#include <algorithm>
#include <random>

#include "cli/import/launcher.h"
#include "job/spec/job.h"
#include "tests/cli/import/support.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

Result<Imported> import_swift(Folder& folder, const std::string& text,
                              Launcher launcher = Launcher::Swift) {
  const auto script = read_script(text + "\n", "s.sh");
  EXPECT_TRUE(script) << text;
  return import_script(folder.files, *script, launcher, "s.sh");
}

json training_of(const std::string& text, Launcher launcher = Launcher::Swift) {
  Folder folder;
  folder.add("/d.jsonl", "{}\n");
  const auto imported = import_swift(folder, text, launcher);
  EXPECT_TRUE(imported) << (imported ? "" : imported.error().to_string());
  return imported ? imported->manifest["spec"]["training"] : json();
}

/// The example of packing with a language model, with files.
TEST(ImportSwift, AScriptOfTheExamples) {
  Folder folder;
  folder.add("/zh.jsonl", "{}\n");
  folder.add("/en.jsonl", "{}\n");
  const auto imported = import_swift(folder, R"(
nproc_per_node=4
CUDA_VISIBLE_DEVICES=0,1,2,3 NNODES=2 NPROC_PER_NODE=$nproc_per_node \
swift sft \
    --model /models/Qwen2.5-7B-Instruct \
    --tuner_type lora \
    --packing true \
    --dataset '/zh.jsonl#500' \
              '/en.jsonl#500' \
    --split_dataset_ratio 0.01 \
    --torch_dtype bfloat16 \
    --num_train_epochs 1 \
    --attn_impl flash_attn \
    --per_device_train_batch_size 2 \
    --learning_rate 2e-4 \
    --lora_rank 16 \
    --target_modules q_proj v_proj \
    --target_parameters mlp.experts.gate_up_proj mlp.experts.down_proj \
    --gradient_accumulation_steps $(expr 64 / $nproc_per_node / 2) \
    --save_steps 50 \
    --save_total_limit 2 \
    --max_length 2048 \
    --output_dir output \
    --system 'You are a helpful assistant.' \
    --warmup_ratio 0.05 \
    --dataloader_num_workers 4 \
    --deepspeed zero2 \
    --model_author swift \
    --model_name swift-robot)");
  ASSERT_TRUE(imported) << imported.error().to_string();
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["workers"], (json{{"replicas", 2}, {"slotsPerWorker", 4}}));
  EXPECT_EQ(spec["training"], json::parse(R"({
      "modelNameOrPath": "/models/Qwen2.5-7B-Instruct", "dataPath": "/zh.jsonl,/en.jsonl",
      "maxSamples": 500, "valSize": 0.01, "bf16": true, "packing": true, "chatTemplate": "model",
      "defaultSystem": "You are a helpful assistant.",
      "numTrainEpochs": 1, "perDeviceTrainBatchSize": 2, "perDeviceEvalBatchSize": 1,
      "gradientAccumulationSteps": 8, "learningRate": 2e-4, "weightDecay": 0.1, "adamBeta2": 0.95,
      "lrSchedulerType": "cosine", "warmupRatio": 0.05, "loggingSteps": 5,
      "loggingFirstStep": true, "saveStrategy": "steps", "saveSteps": 50, "saveTotalLimit": 2,
      "evaluationStrategy": "steps", "evalSteps": 50, "maxSeqLength": 2048,
      "gradientCheckpointing": true, "reportTo": "tensorboard", "outputDir": "output",
      "lora": {"r": 16, "alpha": 32, "dropout": 0.05, "targetModules": ["q_proj", "v_proj"],
               "targetParameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}})"));
  EXPECT_EQ(spec["deepspeed"]["config"]["zero_optimization"]["stage"], 2);
  EXPECT_TRUE(imported->missing.empty());
  EXPECT_TRUE(any_contains(imported->left_open, "cut at the right"));
}

TEST(ImportSwift, WhereALineIsSilentTheDefaultsAreMsSwifts) {
  const json lora = training_of("NPROC_PER_NODE=3 swift sft --model m --dataset /d.jsonl");
  EXPECT_EQ(lora["learningRate"], 1e-4);
  EXPECT_EQ(lora["lora"], json::parse(R"({"r": 8, "alpha": 32, "dropout": 0.05,
                                          "targetModules": "all-linear"})"));
  EXPECT_EQ(lora["perDeviceTrainBatchSize"], 1);
  EXPECT_EQ(lora["gradientAccumulationSteps"], 6) << "ceil(16 / 3)";
  EXPECT_EQ(lora["outputDir"], "output/m");
  EXPECT_FALSE(lora.contains("evaluationStrategy")) << "no rows to evaluate on";
  const json full = training_of(
      "export NPROC_PER_NODE=8\nswift sft --model m --dataset /d.jsonl --train_type full "
      "--lora_rank 4 --per_device_train_batch_size 4");
  EXPECT_EQ(full["learningRate"], 1e-5);
  EXPECT_FALSE(full.contains("lora"));
  EXPECT_EQ(full["gradientAccumulationSteps"], 1);
  EXPECT_EQ(
      training_of(
          "NPROC_PER_NODE=3\nswift sft --model m --dataset /d.jsonl")["gradientAccumulationSteps"],
      16)
      << "not exported: one rank";
}

TEST(ImportSwift, WhatIsLearnedAndWhatIsRefused) {
  const std::string line = " --model m --dataset /d.jsonl ";
  EXPECT_EQ(training_of("swift pt" + line)["objective"], "pretrain");
  EXPECT_EQ(training_of("swift rlhf" + line)["objective"], "dpo");
  const json kto = training_of("swift rlhf --rlhf_type kto" + line + "--desirable_weight 2");
  EXPECT_EQ(kto["objective"], "kto");
  EXPECT_EQ(kto["desirableWeight"], 2);
  const json reward = training_of("swift rlhf --rlhf_type rm" + line +
                                  "--center_rewards_coefficient 0.01 --truncation_strategy left");
  EXPECT_EQ(reward["objective"], "reward");
  EXPECT_EQ(reward["centerRewardsCoefficient"], 0.01);
  EXPECT_FALSE(reward.contains("truncationSide")) << "longer pairs are left out";
  EXPECT_EQ(training_of("swift sft" + line + "--loss_scale last_round")["maskHistory"], true);
  EXPECT_EQ(training_of("swift sft" + line + "--loss_scale all")["trainOnInputs"], true);
  EXPECT_EQ(training_of("swift sft" + line + "--torch_dtype float16")["fp16"], true);
  EXPECT_EQ(
      training_of("swift sft" + line + "--quant_bits 4 --quant_method bnb")["lora"]["loadIn4bit"],
      true);
  EXPECT_EQ(training_of("swift sft" + line + "--adapters out/checkpoint-8 --use_dora true")["lora"],
            json::parse(R"({"adapterNameOrPath": "out/checkpoint-8", "useDora": true})"))
      << "ms-swift reads the rest from the adapter";
  const json plus = training_of("swift sft" + line +
                                "--optimizer lorap --lorap_lr_ratio 16 --init_weights gaussian");
  EXPECT_EQ(plus["lora"]["loraplusLrRatio"], 16);
  EXPECT_EQ(plus["lora"]["initLoraWeights"], "gaussian");
  EXPECT_EQ(plus["lora"]["r"], 8);
  Folder folder;
  folder.add("/d.jsonl", "{}\n");
  for (const std::string bad :
       {"rlhf --rlhf_type grpo", "rlhf --rlhf_type simpo", "sft --tuner_type adalora",
        "sft --task_type seq_cls", "sft --init_weights pissa", "sft --tuner_type full --adapters a",
        "sft --adapters a b", "sft --target_regex x",
        "sft --tuner_type full --freeze_parameters_ratio 0.5", "rlhf --ref_model other",
        "sft --quant_bits 4 --quant_method hqq", "sft words"}) {
    const auto imported = import_swift(folder, "swift " + bad + line);
    EXPECT_FALSE(imported) << bad;
  }
  EXPECT_FALSE(import_swift(folder, "swift infer --model m")) << "no training";
  EXPECT_FALSE(import_swift(folder, "megatron sft --model m"));
}

/// As in ms-swift, freezing comes first, then what is trained again.
TEST(ImportSwift, APartOfTheModel) {
  const auto part = [&](const std::string& words) {
    const json training =
        training_of("swift sft --model m --dataset /d.jsonl --tuner_type full " + words);
    return training.value("trainableParameters", std::string());
  };
  EXPECT_EQ(part("--freeze_parameters_ratio 1 --trainable_parameters lm_head model.layers.3."),
            "lm_head|model\\.layers\\.3\\.");
  EXPECT_EQ(part("--freeze_parameters model.embed_tokens"), "(?!model\\.embed_tokens)");
  EXPECT_EQ(part("--freeze_parameters_regex mlp --trainable_parameters_regex 'down|up'"),
            "(?!.*(?:mlp))|.*(?:down|up)");
  EXPECT_EQ(part("--trainable_parameters lm_head"), "") << "nothing is frozen before";
  Folder folder;
  folder.add("/d.jsonl", "{}\n");
  EXPECT_FALSE(import_swift(folder,
                            "swift sft --model m --dataset /d.jsonl --tuner_type full "
                            "--freeze_parameters_ratio 1"));
}

/// The example with a JSON file; arguments after it take precedence.
TEST(ImportSwift, AFileMayHoldTheArguments) {
  Folder folder;
  folder.add("/d.jsonl", "{}\n");
  folder.add("/sft.json", R"({"model": "m", "dataset": ["/d.jsonl#20"], "lora_rank": 4,
      "learning_rate": 1e-4, "output_dir": "out", "deepspeed": "zero3_offload", "max_length": 512,
      "ENV": {"MAX_PIXELS": "1003520"}})");
  const auto imported =
      import_swift(folder, "swift sft /sft.json --lora_rank 2 --deepspeed ds.json");
  ASSERT_TRUE(imported) << imported.error().to_string();
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["training"]["lora"]["r"], 2);
  EXPECT_EQ(spec["training"]["maxSeqLength"], 512);
  EXPECT_EQ(spec["training"]["maxSamples"], 20);
  EXPECT_EQ(spec["deepspeed"]["configFrom"]["file"], "ds.json");
}

TEST(ImportSwift, ItsScriptsUnderOtherLaunchers) {
  const json training = training_of(
      "torchrun --nproc_per_node=4 --nnodes=2 --node_rank=0 swift/cli/sft.py --model m --dataset "
      "/d.jsonl --deepspeed zero3",
      Launcher::Torchrun);
  EXPECT_EQ(training["gradientAccumulationSteps"], 2) << "16 rows over 8 ranks";
  EXPECT_EQ(training["weightDecay"], 0.1);
}

TEST(ImportSwift, ItsSettingsOfDeepSpeed) {
  struct Case {
    std::string name;
    int stage;
    const char *optimizer, *parameters;
  };
  for (const Case& one :
       {Case{"zero0", 0, nullptr, nullptr}, Case{"zero1", 1, "none", nullptr},
        Case{"zero2", 2, "none", nullptr}, Case{"zero3", 3, "none", "none"},
        Case{"zero2_offload", 2, "cpu", nullptr}, Case{"zero3_offload", 3, "cpu", "cpu"}}) {
    Folder folder;
    folder.add("/d.jsonl", "{}\n");
    const auto imported =
        import_swift(folder, "swift sft --model m --dataset /d.jsonl --deepspeed " + one.name);
    ASSERT_TRUE(imported);
    const json& zero = imported->manifest["spec"]["deepspeed"]["config"]["zero_optimization"];
    EXPECT_EQ(zero["stage"], one.stage);
    const auto place = [&](const char* key) {
      return zero.contains(key) ? zero[key]["device"].get<std::string>() : "";
    };
    EXPECT_EQ(place("offload_optimizer"), one.optimizer ? one.optimizer : "") << one.name;
    EXPECT_EQ(place("offload_param"), one.parameters ? one.parameters : "") << one.name;
  }
  Folder folder;
  folder.add("/d.jsonl", "{}\n");
  const std::string line = "swift sft --model m --dataset /d.jsonl --sequence_parallel_size 2";
  const auto rows = import_swift(folder, line + " --deepspeed zero3");
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->manifest["spec"]["deepspeed"]["config"]["sequence_parallel_size"], 2);
  const auto file = import_swift(folder, line + " --deepspeed f.json");
  ASSERT_TRUE(file);
  EXPECT_TRUE(any_contains(file->not_carried, "write it into f.json"));
}

TEST(ImportSwift, ADataSetOfAHubIsMissing) {
  Folder folder;
  const auto imported =
      import_swift(folder, "swift sft --model m --dataset 'AI-ModelScope/alpaca-gpt4-data-zh#500'");
  ASSERT_TRUE(imported);
  ASSERT_EQ(imported->missing.size(), 1u);
  EXPECT_EQ(imported->missing[0].path, "spec.training.dataPath");
  EXPECT_NE(imported->missing[0].message.find("AI-ModelScope"), std::string::npos);
}

TEST(ImportSwift, AMethodThatIsNotBuiltIsRefused) {
  Folder folder;
  folder.add("/d.jsonl", "{}\n");
  for (const auto& [name, value] : {std::pair{"--loss_scale", "hermes"},
                                    {"--loss_scale", "last_round+ignore_empty_think"},
                                    {"--optimizer", "muon"},
                                    {"--external_plugins", "own.py"}}) {
    const auto taken = swift_arguments(folder.files, "sft",
                                       {"--model", "m", "--dataset", "/d.jsonl", name, value}, 1);
    if (taken) {
      EXPECT_FALSE(jobspec::manifest_from_arguments(taken->line, true)) << name << " " << value;
    }
  }
  const auto lorap = swift_arguments(
      folder.files, "sft", {"--model", "m", "--dataset", "/d.jsonl", "--optimizer", "lorap"}, 1);
  EXPECT_TRUE(lorap);
}

TEST(ImportSwift, TheSystemTextMayBeInAFile) {
  Folder folder;
  folder.add("/d.jsonl", "{}\n");
  folder.add("/system.txt", "Be brief.");
  for (const char* system : {"Be brief.", "/system.txt"}) {
    const auto taken = swift_arguments(
        folder.files, "sft", {"--model", "m", "--dataset", "/d.jsonl", "--system", system}, 1);
    ASSERT_TRUE(taken) << taken.error().to_string();
    EXPECT_NE(std::ranges::find(taken->line, "--default_system=Be brief."), taken->line.end());
  }
}

/// Every argument of a line is in the job, or the import reports it.
TEST(ImportSwift, NoArgumentVanishes) {
  const std::vector<std::pair<std::string, std::string>> known = {{"learning_rate", "3e-5"},
                                                                  {"warmup_ratio", "0.1"},
                                                                  {"attn_impl", "flash_attn"},
                                                                  {"lora_alpha", "64"},
                                                                  {"seed", "7"},
                                                                  {"nonsense", "1"},
                                                                  {"template", "qwen"},
                                                                  {"streaming", "true"},
                                                                  {"use_liger_kernel", "true"},
                                                                  {"save_only_model", "true"},
                                                                  {"neftune_noise_alpha", "5"},
                                                                  {"dataset_num_proc", "4"},
                                                                  {"lisa_activated_layers", "2"},
                                                                  {"columns", "{\"a\": \"b\"}"},
                                                                  {"max_pixels", "1003520"},
                                                                  {"rope_scaling", "yarn"}};
  std::mt19937 draw(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> words = {"--model", "m", "--dataset", "/d.jsonl"};
    std::vector<std::string> names;
    for (const auto& [name, value] : known) {
      if (draw() % 2) continue;
      names.push_back(name);
      if (draw() % 2) {
        words.push_back("--" + name + "=" + value);
      } else {
        words.insert(words.end(), {"--" + name, value});
      }
    }
    Folder folder;
    folder.add("/d.jsonl", "{}\n");
    const auto taken = swift_arguments(folder.files, "sft", words, 1);
    ASSERT_TRUE(taken) << taken.error().to_string();
    std::vector<std::string> all = taken->line;
    all.insert(all.end(), taken->left_open.begin(), taken->left_open.end());
    all.insert(all.end(), taken->not_carried.begin(), taken->not_carried.end());
    for (const std::string& name : names) EXPECT_TRUE(any_contains(all, name)) << name;
  }
}

}  // namespace
}  // namespace dsj::jobimport
