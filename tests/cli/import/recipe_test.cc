#include "cli/import/recipe.h"

#include <algorithm>
#include <random>
#include <sstream>

#include "cli/import/launcher.h"
#include "job/argument_table.h"
#include "job/spec/yaml.h"
#include "tests/cli/import/support.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

Result<Imported> import_text(Folder& folder, Recipe recipe, const std::string& text) {
  DSJ_TRY(const auto document, jobspec::parse_yaml(text, "train.yaml", jobspec::Dialect::Omega));
  EXPECT_EQ(recipe_kind(document.value), recipe == Recipe::Axolotl ? "axolotl" : "llamafactory");
  return import_recipe(folder.files, recipe, document.value, "train.yaml");
}

TEST(RecipeTest, ALlamaFactoryFile) {
  Folder folder;
  folder.add("/data/dataset_info.json", R"({"mine": {"file_name": "mine.json"},
      "chats": {"file_name": "c.jsonl", "formatting": "sharegpt"}, "hub": {"hf_hub_url": "a/b"}})");
  auto imported = import_text(folder, Recipe::LlamaFactory, R"(
model_name_or_path: ./model
trust_remote_code: true
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
deepspeed: examples/deepspeed/ds_z3_config.json
dataset: mine
dataset_dir: /data
eval_dataset: chats
template: qwen3_nothink
cutoff_len: 2048
preprocessing_num_workers: 16
output_dir: saves/x
logging_steps: 10
save_steps: 500
plot_loss: true
report_to: none
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
resume_from_checkpoint: null
)");
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {}));
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["deepspeed"]["configFrom"]["file"], "examples/deepspeed/ds_z3_config.json");
  EXPECT_EQ(spec["training"], json::parse(R"({"modelNameOrPath": "./model",
      "dataPath": "/data", "dataset": "mine", "evalDataset": "chats", "outputDir": "saves/x",
      "maxSeqLength": 2048, "loggingSteps": 10, "saveSteps": 500, "reportTo": "none",
      "perDeviceTrainBatchSize": 1, "gradientAccumulationSteps": 8, "learningRate": 1e-4,
      "numTrainEpochs": 3, "lrSchedulerType": "cosine", "warmupRatio": 0.1, "bf16": true,
      "chatTemplate": "model",
      "lora": {"r": 8, "alpha": 16, "targetModules": "all-linear"}})"));
  for (const char* open : {"template qwen3_nothink", "slotsPerWorker"})
    EXPECT_TRUE(any_contains(imported->left_open, open)) << open;
  EXPECT_TRUE(any_contains(imported->not_carried, "trust_remote_code: no effect"));
}

TEST(RecipeTest, AdaptersOfBothTools) {
  Folder folder;
  folder.add("/data/dataset_info.json", R"({"mine": {"file_name": "mine.json"}})");
  const auto lora_of = [&](Recipe recipe, const std::string& text) -> json {
    const auto imported = import_text(folder, recipe, text);
    EXPECT_TRUE(imported) << imported.error().to_string();
    if (!imported) return nullptr;
    return imported->manifest["spec"]["training"].value("lora", json());
  };
  const std::string factory =
      "model_name_or_path: m\nstage: sft\ndataset: mine\ndataset_dir: /data\n";
  EXPECT_EQ(lora_of(Recipe::LlamaFactory, factory + "adapter_name_or_path: saves/a\n"),
            json::parse(R"({"adapterNameOrPath": "saves/a"})"))
      << "rank, alpha and targets are the adapter's";
  EXPECT_EQ(lora_of(Recipe::LlamaFactory,
                    factory + "loraplus_lr_ratio: 16.0\nuse_dora: true\nlora_rank: 4\n"),
            json::parse(R"({"r": 4, "alpha": 8, "targetModules": "all-linear", "useDora": true,
                            "loraplusLrRatio": 16.0})"));
  EXPECT_EQ(lora_of(Recipe::LlamaFactory,
                    factory + "finetuning_type: full\nuse_dora: true\nloraplus_lr_ratio: 4\n"),
            nullptr);
  const std::string axolotl =
      "base_model: m\nadapter: lora\nmicro_batch_size: 1\ndatasets:\n  - path: mine.json\n";
  EXPECT_EQ(lora_of(Recipe::Axolotl, axolotl + "lora_model_dir: out/a\nloraplus_lr_ratio: 8\n"),
            json::parse(R"({"adapterNameOrPath": "out/a", "loraplusLrRatio": 8})"));
  EXPECT_EQ(lora_of(Recipe::Axolotl, axolotl + "lora_r: 8\nlora_alpha: 16\npeft_use_dora: true\n"
                                               "peft_init_lora_weights: gaussian\n"
                                               "peft_layers_to_transform: [0, 1]\n"),
            json::parse(R"({"r": 8, "alpha": 16, "useDora": true, "initLoraWeights": "gaussian",
                            "layersToTransform": [0, 1]})"));
  for (const char* line : {"adapter_name_or_path: a,b", "use_dora: maybe",
                           "create_new_adapter: true", "pissa_init: true"}) {
    const auto refused = import_text(folder, Recipe::LlamaFactory, factory + line + "\n");
    EXPECT_FALSE(refused) << line;
  }
}

/// A way to train that is not built is refused by every importer, however the tool calls it, and what
/// switches it off is taken.
TEST(RecipeTest, AWayToTrainThatIsNotBuiltIsRefused) {
  const auto file = [](const std::string& head, std::string_view name, const std::string& value) {
    return head + std::string(name) + ": " + value + "\n";
  };
  const std::string llamafactory =
      "stage: sft\nmodel_name_or_path: m\ndataset: mine\nfinetuning_type: lora\ntemplate: qwen\n";
  const std::string axolotl =
      "base_model: m\nadapter: lora\nmicro_batch_size: 1\ndatasets:\n  - path: mine.json\n    "
      "type: "
      "alpaca\n";
  int methods = 0;
  for (const ArgumentGroup& group : argument_groups()) {
    for (const ArgumentRow& row : group.rows) {
      if (!is_method(row.name)) continue;
      ++methods;
      std::vector<std::string> off = {"null", "''"};
      std::istringstream neutral{std::string(row.neutral.empty() ? "false" : row.neutral)};
      for (std::string value; neutral >> value;) off.push_back(value);
      for (const auto& [recipe, head] :
           {std::pair{Recipe::LlamaFactory, llamafactory}, std::pair{Recipe::Axolotl, axolotl}}) {
        for (const char* value : {"4", "pissa", "[a, b]"}) {
          Folder folder;
          const auto refused = import_text(folder, recipe, file(head, row.name, value));
          ASSERT_FALSE(refused) << row.name << " " << value;
          EXPECT_NE(refused.error().to_string().find(row.name), std::string::npos)
              << refused.error().to_string();
        }
        for (const std::string& value : off) {
          Folder folder;
          const auto taken = import_text(folder, recipe, file(head, row.name, value));
          EXPECT_TRUE(taken) << row.name << " " << value << ": " << taken.error().to_string();
        }
      }
      Folder folder;
      const auto script = read_script(
          "torchrun t.py --deepspeed ds.json --" + std::string(row.name) + " 4", "run.sh");
      ASSERT_TRUE(script);
      EXPECT_FALSE(import_script(folder.files, *script, Launcher::Torchrun, "run.sh")) << row.name;
    }
  }
  EXPECT_GT(methods, 15);
}

/// LLaMA-Factory's examples of evaluation, and its switch for weights in bf16.
TEST(RecipeTest, AFileThatPredictsIsNotTrained) {
  Folder folder;
  const std::string file =
      "model_name_or_path: ./m\nstage: sft\nfinetuning_type: full\ntemplate: llama3\n"
      "output_dir: o\npure_bf16: true\n";
  const auto predicts = import_text(folder, Recipe::LlamaFactory, file + "do_predict: true\n");
  ASSERT_FALSE(predicts);
  EXPECT_NE(predicts.error().hint.find("dsj generate"), std::string::npos);
  const auto both =
      import_text(folder, Recipe::LlamaFactory, file + "do_predict: true\ndo_train: true\n");
  ASSERT_TRUE(both) << both.error().to_string();
  EXPECT_EQ(both->manifest["spec"]["training"]["bf16"], true);
  EXPECT_TRUE(any_contains(both->left_open, "pure_bf16"));
}

/// Its examples of merging and of inference.
TEST(RecipeTest, AFileThatDoesNotTrainNamesTheVerb) {
  const std::string file = "model_name_or_path: ./m\nadapter_name_or_path: ./a\ntemplate: qwen3\n";
  for (const auto& [more, verb] :
       {std::pair{"export_dir: o\nexport_size: 5\nexport_device: cpu\n", "dsj merge"},
        {"infer_backend: huggingface  # choices: [huggingface, vllm]\n", "dsj chat"}}) {
    Folder folder;
    const auto refused = import_text(folder, Recipe::LlamaFactory, file + more);
    ASSERT_FALSE(refused) << more;
    EXPECT_NE(refused.error().hint.find(verb), std::string::npos) << refused.error().to_string();
  }
}

TEST(RecipeTest, ADataSetOfTheHubIsAskedFor) {
  Folder folder;
  folder.add("/data/dataset_info.json", R"({"hub": {"hf_hub_url": "a/b"}})");
  auto imported =
      import_text(folder, Recipe::LlamaFactory,
                  "model_name_or_path: m\nstage: sft\ndataset: hub\ndataset_dir: /data\n"
                  "output_dir: o\n");
  ASSERT_TRUE(imported) << imported.error().to_string();
  const auto done = finish(*imported, {});
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().to_string().find("spec.training.dataPath"), std::string::npos)
      << done.error().to_string();
}

TEST(RecipeTest, AnAxolotlFile) {
  Folder folder;
  folder.add("/rows.jsonl", "{}");
  auto imported = import_text(folder, Recipe::Axolotl, R"(
base_model: ./llama
model_type: LlamaForCausalLM
load_in_8bit: false
datasets:
  - path: /rows.jsonl
    ds_type: json
    type: alpaca
  - path: other/rows
val_set_size: 0.05
output_dir: ./out
sequence_len: 4096
sample_packing: true
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_target_linear: true
lora_model_dir:
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 2
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
cosine_min_lr_ratio: 0.1
learning_rate: 0.0002
bf16: auto
gradient_checkpointing: true
evals_per_epoch: 4
saves_per_epoch: 1
weight_decay: 0.1
fsdp:
special_tokens:
  eos_token: "</s>"
unheard_of: 1
)");
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {}));
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["deepspeed"]["config"]["zero_optimization"]["stage"], 0);
  EXPECT_EQ(spec["training"], json::parse(R"({"modelNameOrPath": "./llama",
      "dataPath": "/rows.jsonl", "valSize": 0.05, "outputDir": "./out",
      "maxSeqLength": 4096, "packing": true, "lora": {"r": 32, "alpha": 16,
      "targetModules": "all-linear"}, "gradientAccumulationSteps": 4,
      "perDeviceTrainBatchSize": 2, "numTrainEpochs": 2, "lrSchedulerType": "cosine_with_min_lr",
      "lrSchedulerKwargs": {"min_lr_rate": 0.1}, "optim": "adamw_bnb_8bit", "learningRate": 2e-4, "bf16": true,
      "gradientCheckpointing": true, "evaluationStrategy": "steps", "evalSteps": 0.125,
      "saveStrategy": "steps", "saveSteps": 0.5, "weightDecay": 0.1, "eosToken": "</s>", "perDeviceEvalBatchSize": 2,
      "warmupRatio": 0.03})"));
  for (const char* lost :
       {"adapter: load_in_4bit", "datasets[1]", "unheard_of: not known here", "bf16: auto"})
    EXPECT_TRUE(any_contains(imported->not_carried, lost)) << lost;
}

/// axolotl evaluates only if val_set_size or test_datasets gives rows.
TEST(RecipeTest, WithoutRowsAxolotlDoesNotEvaluate) {
  Folder folder;
  folder.add("/rows.jsonl", "{}");
  const std::string axolotl =
      "base_model: ./llama\noutput_dir: ./o\nmicro_batch_size: 1\ndatasets:\n"
      "  - path: /rows.jsonl\n    type: alpaca\nearly_stopping_patience: 3\nsave_steps: 10\n";
  for (const std::string when :
       {"eval_steps: 10\n", "evals_per_epoch: 4\n", "eval_strategy: epoch\n"}) {
    auto imported = import_text(folder, Recipe::Axolotl, axolotl + when + "val_set_size: 0\n");
    ASSERT_TRUE(imported) << imported.error().to_string();
    const json& without = imported->manifest["spec"]["training"];
    for (const char* field : {"evaluationStrategy", "evalSteps", "earlyStoppingPatience"})
      EXPECT_FALSE(without.contains(field)) << field;
    EXPECT_TRUE(any_contains(imported->not_carried, "no rows to evaluate on"));
    imported = import_text(folder, Recipe::Axolotl, axolotl + when + "val_set_size: 0.1\n");
    ASSERT_TRUE(imported) << imported.error().to_string();
    const json& with = imported->manifest["spec"]["training"];
    EXPECT_TRUE(with.contains("evaluationStrategy"));
    EXPECT_EQ(with["earlyStoppingPatience"], 3);
    EXPECT_EQ(with["metricForBestModel"], "loss");
  }
}

/// FSDP in axolotl's two forms; a base in 4 bits is not sharded.
TEST(RecipeTest, ShardingOfAxolotl) {
  Folder folder;
  folder.add("/rows.jsonl", "{}");
  const std::string axolotl =
      "base_model: ./llama\noutput_dir: ./o\ndatasets:\n  - path: /rows.jsonl\n    type: alpaca\n";
  const std::string first =
      "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n"
      "  fsdp_offload_params: true\n  fsdp_state_dict_type: FULL_STATE_DICT\n";
  const std::string second =
      "fsdp_version: 2\nfsdp_config:\n  offload_params: true\n"
      "  reshard_after_forward: true\n";
  for (const std::string& fsdp : {first, second}) {
    auto imported = import_text(folder, Recipe::Axolotl, axolotl + fsdp);
    ASSERT_TRUE(imported) << imported.error().to_string();
    EXPECT_EQ(imported->manifest["spec"]["deepspeed"]["config"]["zero_optimization"],
              json::parse(R"({"stage": 3, "offload_optimizer": {"device": "cpu"},
                              "offload_param": {"device": "cpu"}})"))
        << fsdp;
    imported = import_text(folder, Recipe::Axolotl,
                           axolotl + fsdp + "adapter: qlora\nload_in_4bit: true\n");
    ASSERT_TRUE(imported) << imported.error().to_string();
    EXPECT_EQ(imported->manifest["spec"]["deepspeed"]["config"]["zero_optimization"]["stage"], 2);
    EXPECT_TRUE(any_contains(imported->left_open, "2 with a base in 4 bits"));
  }
}

/// Both tools quantise the scales, too, by default.
TEST(RecipeTest, ABaseInFourBits) {
  Folder folder;
  folder.add("/rows.jsonl", "{}");
  const std::string axolotl =
      "base_model: ./llama\noutput_dir: ./o\nadapter: qlora\nload_in_4bit: true\ndatasets:\n"
      "  - path: /rows.jsonl\n    type: alpaca\n";
  auto imported = import_text(folder, Recipe::Axolotl, axolotl);
  ASSERT_TRUE(imported) << imported.error().to_string();
  json lora = imported->manifest["spec"]["training"]["lora"];
  EXPECT_EQ(lora["loadIn4bit"], true);
  EXPECT_EQ(lora["bnb4bitUseDoubleQuant"], true);
  EXPECT_FALSE(any_contains(imported->not_carried, "load_in_4bit"));
  imported = import_text(folder, Recipe::Axolotl,
                         axolotl + "bnb_config_kwargs:\n  bnb_4bit_use_double_quant: false\n");
  ASSERT_TRUE(imported) << imported.error().to_string();
  lora = imported->manifest["spec"]["training"]["lora"];
  EXPECT_EQ(lora["loadIn4bit"], true);
  EXPECT_FALSE(lora.value("bnb4bitUseDoubleQuant", false));
  EXPECT_FALSE(any_contains(imported->not_carried, "bnb")) << "it is carried over";
  const std::string factory =
      "model_name_or_path: m\nstage: sft\ndo_train: true\nfinetuning_type: lora\noutput_dir: ./o\n"
      "quantization_bit: 4\nquantization_method: bitsandbytes\n";
  for (const bool two_levels : {true, false}) {
    imported = import_text(folder, Recipe::LlamaFactory,
                           factory + (two_levels ? "" : "double_quantization: false\n"));
    ASSERT_TRUE(imported) << imported.error().to_string();
    lora = imported->manifest["spec"]["training"]["lora"];
    EXPECT_EQ(lora["loadIn4bit"], true) << lora.dump();
    EXPECT_EQ(lora.value("bnb4bitUseDoubleQuant", false), two_levels) << lora.dump();
    EXPECT_FALSE(any_contains(imported->not_carried, "quantization_bit"));
  }
}

/// Missing keys get the tool's defaults, not Trainer's.
TEST(RecipeTest, WhereTheFileIsSilentItsToolDecides) {
  Folder folder;
  folder.add("/data/dataset_info.json", R"({"d": {"file_name": "d.json"}})");
  const std::string llama =
      "model_name_or_path: m\nstage: sft\ndataset: d\ndataset_dir: /data\noutput_dir: o\n";
  const auto training = [&](Recipe recipe, const std::string& text) {
    auto imported = import_text(folder, recipe, text);
    EXPECT_TRUE(imported && finish(*imported, {})) << text;
    return imported ? imported->manifest["spec"]["training"] : json();
  };
  EXPECT_EQ(training(Recipe::LlamaFactory, llama)["lora"],
            json::parse(R"({"r": 8, "alpha": 16, "targetModules": "all-linear"})"));
  EXPECT_EQ(
      training(Recipe::LlamaFactory, llama + "lora_rank: 64\nadditional_target: lm_head\n")["lora"],
      json::parse(R"({"r": 64, "alpha": 128, "targetModules": "all-linear",
                            "modulesToSave": ["lm_head"]})"));
  EXPECT_FALSE(training(Recipe::LlamaFactory, llama + "finetuning_type: full\nlora_rank: 8\n")
                   .contains("lora"));

  folder.add("/rows.jsonl", "{}");
  const std::string axolotl =
      "base_model: m\ndatasets:\n  - path: /rows.jsonl\noutput_dir: o\nlearning_rate: 2e-4\n";
  json found = training(Recipe::Axolotl, axolotl);
  EXPECT_EQ(found["numTrainEpochs"], 1);
  EXPECT_EQ(found["maxSeqLength"], 512);
  EXPECT_EQ(found["lrSchedulerType"], "cosine");
  EXPECT_EQ(found["perDeviceTrainBatchSize"], 1);
  EXPECT_EQ(found["bf16"], true);
  found = training(Recipe::Axolotl, axolotl + R"(batch_size: 9
micro_batch_size: 2
sequence_len: 4_096
num_epochs: 3
lr_scheduler: linear
fp16: yes
val_set_size: 0.1
adapter: lora
lora_r: 8
lora_alpha: 16
lora_target_linear: true
lora_target_modules: [q_proj]
curriculum_sampling: true
)");
  EXPECT_EQ(found["gradientAccumulationSteps"], 4);
  EXPECT_EQ(found["perDeviceTrainBatchSize"], 2);
  EXPECT_EQ(found["perDeviceEvalBatchSize"], 2);
  EXPECT_EQ(found["maxSeqLength"], 4096);
  EXPECT_EQ(found["numTrainEpochs"], 3);
  EXPECT_EQ(found["lrSchedulerType"], "linear");
  EXPECT_EQ(found["fp16"], true);
  EXPECT_FALSE(found.contains("bf16"));
  EXPECT_EQ(found["lora"]["targetModules"], "all-linear");
  EXPECT_EQ(found["shuffle"], false);
}

TEST(RecipeTest, AxolotlsAdaptersOnExperts) {
  Folder folder;
  folder.add("/rows.jsonl", "{}");
  const auto imported = import_text(folder, Recipe::Axolotl, R"(
base_model: openai/gpt-oss-20b
datasets: [{path: /rows.jsonl, type: alpaca}]
micro_batch_size: 1
gradient_accumulation_steps: 8
adapter: lora
lora_r: 8
lora_alpha: 16
lora_dropout: 0.0
lora_target_linear: true
lora_target_parameters:
  - mlp.experts.gate_up_proj
  - mlp.experts.down_proj
)");
  ASSERT_TRUE(imported) << imported.error().to_string();
  const json& lora = imported->manifest["spec"]["training"]["lora"];
  EXPECT_EQ(lora["targetModules"], "all-linear");
  EXPECT_EQ(lora["targetParameters"], (json{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
}

TEST(RecipeTest, APartOfTheModel) {
  Folder folder;
  folder.add("/rows.jsonl", "{}");
  const auto training = [&](Recipe recipe, const std::string& text) {
    auto imported = import_text(folder, recipe, text);
    EXPECT_TRUE(imported) << text;
    if (!imported) return json();
    json fields = imported->manifest["spec"]["training"];
    return json{{"layers", fields.value("trainableLayers", json())},
                {"parameters", fields.value("trainableParameters", json())}};
  };
  const std::string freeze = "model_name_or_path: m\nstage: sft\nfinetuning_type: freeze\n";
  EXPECT_EQ(training(Recipe::LlamaFactory, freeze), json({{"layers", 2}, {"parameters", nullptr}}))
      << "LLaMA-Factory's defaults";
  EXPECT_EQ(training(Recipe::LlamaFactory, freeze + "freeze_trainable_layers: -3\n"
                                                    "freeze_trainable_modules: all\n"),
            json({{"layers", -3}, {"parameters", nullptr}}));
  EXPECT_EQ(training(Recipe::LlamaFactory, freeze + "freeze_trainable_modules: mlp,self_attn\n"
                                                    "freeze_extra_modules: lm_head\n"),
            json({{"layers", 2}, {"parameters", R"(.*\.\d+\.mlp|.*\.\d+\.self_attn|.*lm_head)"}}));
  EXPECT_EQ(training(Recipe::LlamaFactory, freeze + "freeze_extra_modules: [lm_head]\n"),
            json({{"layers", 2}, {"parameters", R"(.*\.\d+\.|.*lm_head)"}}));
  EXPECT_FALSE(import_text(folder, Recipe::LlamaFactory, freeze + "use_llama_pro: true\n"));
  EXPECT_FALSE(import_text(folder, Recipe::LlamaFactory, freeze + "freeze_extra_modules: norm\n"));

  const std::string axolotl =
      "base_model: m\ndatasets:\n  - path: /rows.jsonl\nunfrozen_parameters:\n"
      "  - ^lm_head.weight$\n  - model.layers.4[4-9]+.block_sparse_moe.gate\n";
  EXPECT_EQ(training(Recipe::Axolotl, axolotl),
            json({{"layers", nullptr},
                  {"parameters",
                   R"(^lm_head\.weight$|model\.layers\.4[4-9]+\.block_sparse_moe\.gate)"}}));
  EXPECT_EQ(training(Recipe::Axolotl, axolotl + "adapter: lora\n"),
            json({{"layers", nullptr}, {"parameters", nullptr}}));
  const auto rows =
      import_text(folder, Recipe::Axolotl, axolotl + "  - ^model.embed_tokens.weight$[:32000]\n");
  ASSERT_TRUE(rows);
  EXPECT_TRUE(std::ranges::any_of(rows->missing, [](const Missing& one) {
    return one.path == "spec.training.trainableParameters";
  }));
}

/// An import never silently changes what is trained.
TEST(RecipeTest, OtherObjectivesAreRefused) {
  Folder folder;
  for (const auto& [text, says] :
       {std::pair{"model_name_or_path: m\nstage: ppo\n", "stage ppo is not built"},
        std::pair{"model_name_or_path: m\nstage: sft\nfinetuning_type: oft\n",
                  "finetuning_type oft is not built"}}) {
    const auto imported = import_text(folder, Recipe::LlamaFactory, text);
    ASSERT_FALSE(imported) << text;
    EXPECT_EQ(imported.error().message, says);
  }
  for (const auto& [text, says] :
       {std::pair{"base_model: m\nmicro_batch_size: 1\nrl: grpo\n", "rl grpo is not built"},
        std::pair{"base_model: m\nmicro_batch_size: 1\nadapter: llama-adapter\n",
                  "adapter llama-adapter is not built"},
        std::pair{"base_model: m\nmicro_batch_size: 1\nprocess_reward_model: true\n",
                  "process_reward_model True is not built"}}) {
    const auto imported = import_text(folder, Recipe::Axolotl, text);
    ASSERT_FALSE(imported) << text;
    EXPECT_EQ(imported.error().message, says);
  }
}

/// Keys that change what is learnt, from the examples of both tools, each with a value that switches it on.
TEST(RecipeTest, AMethodThatIsNotBuiltIsRefusedAndOffIsAccepted) {
  Folder folder;
  const std::string factory = "model_name_or_path: m\noutput_dir: o\nstage: sft\n";
  const std::string axolotl =
      "base_model: m\nmicro_batch_size: 1\noutput_dir: o\ndatasets:\n  - path: /rows.jsonl\n";
  struct Case {
    Recipe recipe;
    std::string on, off;
  };
  for (const Case& c : std::vector<Case>{
           {Recipe::LlamaFactory, "use_muon: true", "use_muon: false"},
           {Recipe::LlamaFactory, "use_adam_mini: true", "use_adam_mini: false"},
           {Recipe::LlamaFactory, "use_eaft_loss: true", "use_eaft_loss: false"},
           {Recipe::LlamaFactory, "use_asft_loss: true", "use_asft_loss: false"},
           {Recipe::LlamaFactory, "use_galore: true", "use_galore: false"},
           {Recipe::LlamaFactory, "fp8: true", "fp8: false"},
           {Recipe::Axolotl, "qat: {activation_dtype: int8}", "qat:"},
           {Recipe::Axolotl, "diffusion: {mask_token_id: 7}", "diffusion:"},
           {Recipe::Axolotl, "fp8: true", "fp8: false"},
           {Recipe::Axolotl, "tokens: [<think>]", "tokens: {bos_token: <s>, eos_token: </s>}"},
           {Recipe::Axolotl, "use_eaft: true", "use_eaft: false"},
           {Recipe::Axolotl, "reinit_weights: true", "reinit_weights: false"},
           {Recipe::Axolotl, "cosine_constant_lr_ratio: 0.8", "cosine_constant_lr_ratio:"},
           {Recipe::Axolotl, "plugins: [axolotl.integrations.diffusion.DiffusionPlugin]",
            "plugins: [axolotl.integrations.liger.LigerPlugin]"},
           {Recipe::Axolotl, "plugins: [axolotl.integrations.kd.KDPlugin]", "plugins: []"}}) {
    const std::string& own = c.recipe == Recipe::LlamaFactory ? factory : axolotl;
    EXPECT_FALSE(import_text(folder, c.recipe, own + c.on + "\n")) << c.on;
    const auto off = import_text(folder, c.recipe, own + c.off + "\n");
    EXPECT_TRUE(off) << c.off << (off ? "" : off.error().to_string());
  }
}

TEST(RecipeTest, PreferencesAreCarriedOver) {
  Folder folder;
  const auto training = [&](Recipe recipe, const std::string& text) {
    const auto imported = import_text(folder, recipe, text);
    EXPECT_TRUE(imported) << text << (imported ? "" : imported.error().to_string());
    return imported ? imported->manifest["spec"]["training"] : json();
  };
  const std::string factory = "model_name_or_path: m\noutput_dir: o\n";
  json dpo = training(Recipe::LlamaFactory, factory +
                                                "stage: dpo\npref_beta: 0.2\npref_loss: ipo\n"
                                                "dpo_label_smoothing: 0\npref_ftx: 0.0\n");
  EXPECT_EQ(dpo["objective"], "dpo");
  EXPECT_EQ(dpo["beta"], 0.2);
  EXPECT_EQ(dpo["lossType"], "ipo");
  json orpo = training(Recipe::LlamaFactory, factory + "stage: dpo\npref_loss: orpo\n");
  EXPECT_EQ(orpo["objective"], "orpo");
  EXPECT_FALSE(orpo.contains("lossType"));
  EXPECT_EQ(training(Recipe::LlamaFactory, factory + "stage: pt\n")["objective"], "pretrain");
  json kto = training(Recipe::LlamaFactory,
                      factory + "stage: kto\npref_beta: 0.1\nkto_chosen_weight: 1.5\n");
  EXPECT_EQ(kto["objective"], "kto");
  EXPECT_EQ(kto["beta"], 0.1);
  EXPECT_EQ(kto["desirableWeight"], 1.5);
  kto = training(Recipe::LlamaFactory, factory + "stage: dpo\npref_loss: kto_pair\n");
  EXPECT_EQ(kto["objective"], "kto");
  EXPECT_FALSE(kto.contains("lossType"));
  const auto notes = [&](const std::string& more) {
    const auto imported = import_text(folder, Recipe::LlamaFactory, factory + more);
    EXPECT_TRUE(imported);
    return imported ? json(imported->left_open).dump() : "";
  };
  // LLaMA-Factory: packing is on in stage pt unless it is off by name.
  for (const std::string on : {"", "packing: true\n", "neat_packing: true\npacking: true\n"}) {
    const json pretrain = training(Recipe::LlamaFactory, factory + "stage: pt\n" + on);
    EXPECT_EQ(pretrain["packing"], true) << on;
    EXPECT_EQ(pretrain["packingStrategy"], "wrapped") << on;
  }
  EXPECT_NE(notes("stage: pt\n").find("1,000 at a time"), std::string::npos);
  const json apart = training(Recipe::LlamaFactory, factory + "stage: pt\npacking: false\n");
  EXPECT_FALSE(apart.contains("packingStrategy"));
  EXPECT_NE(notes("stage: sft\npacking: true\n").find("neat_packing"), std::string::npos);
  EXPECT_EQ(notes("stage: sft\npacking: true\nneat_packing: true\n").find("neat_packing"),
            std::string::npos);
  const std::string axolotl = "base_model: m\nmicro_batch_size: 1\noutput_dir: o\n";
  dpo = training(Recipe::Axolotl, axolotl + "rl: ipo\nrl_beta: 0.3\n");
  EXPECT_EQ(dpo["objective"], "dpo");
  EXPECT_EQ(dpo["lossType"], "ipo");
  EXPECT_EQ(dpo["beta"], 0.3);
  orpo = training(Recipe::Axolotl, axolotl + "rl: orpo\norpo_alpha: 0.1\n");
  EXPECT_EQ(orpo["objective"], "orpo");
  EXPECT_EQ(orpo["beta"], 0.1);
  kto = training(Recipe::Axolotl, axolotl + "rl: kto\nrl_beta: 0.5\nkto_desirable_weight: 0.2\n");
  EXPECT_EQ(kto["objective"], "kto");
  EXPECT_EQ(kto["beta"], 0.5);
  EXPECT_EQ(kto["desirableWeight"], 0.2);
  const json reward = training(
      Recipe::Axolotl,
      "base_model: m\nmicro_batch_size: 1\nreward_model: true\ncenter_rewards_coefficient: 0.01\n");
  EXPECT_EQ(reward["objective"], "reward");
  EXPECT_EQ(reward["centerRewardsCoefficient"], 0.01);
  EXPECT_EQ(reward["outputDir"], "./model-out") << "axolotl's default";
}

/// Files are untrusted: a value of another type causes at most a refusal.
TEST(RecipeTest, NoValueOfAKnownKeyIsTooOdd) {
  Folder folder;
  folder.add("/data/dataset_info.json",
             R"({"a": {"file_name": 3}, "b": [], "c": {"file_name": "c"}})");
  const json values =
      json::parse(R"([null, true, 3, -0.5, 1e300, "", "a", "a,b", "/data", "no", [], ["a"],
      [[]], [{}], [{"path": 3}], [{"path": "/data", "data_files": {"x": 1}}], {}, {"x": null}])");
  const char* keys[] = {"model_name_or_path",
                        "base_model",
                        "stage",
                        "finetuning_type",
                        "adapter",
                        "dataset",
                        "dataset_dir",
                        "eval_dataset",
                        "datasets",
                        "test_datasets",
                        "template",
                        "val_size",
                        "val_set_size",
                        "deepspeed",
                        "output_dir",
                        "bf16",
                        "num_epochs",
                        "evals_per_epoch",
                        "saves_per_epoch",
                        "eval_steps",
                        "special_tokens",
                        "chat_template",
                        "cosine_min_lr_ratio",
                        "wandb_project",
                        "lora_target_linear",
                        "micro_batch_size",
                        "learning_rate",
                        "rl",
                        "odd"};
  std::mt19937 random(33);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    json document = json::object();
    for (const char* key : keys)
      if (random() % 4 == 0) document[key] = values[random() % values.size()];
    for (const Recipe recipe : {Recipe::LlamaFactory, Recipe::Axolotl})
      ASSERT_NO_THROW(read += import_recipe(folder.files, recipe, document, "f").has_value())
          << document;
  }
  EXPECT_GT(read, 2'000);
}

TEST(RecipeTest, OtherFilesAreNeither) {
  for (const char* text : {R"({"kind": "DeepSpeedJob", "model_name_or_path": 1, "stage": "sft"})",
                           R"({"zero_optimization": {"stage": 1}})", "[]"})
    EXPECT_FALSE(recipe_kind(json::parse(text))) << text;
}

}  // namespace
}  // namespace dsj::jobimport
