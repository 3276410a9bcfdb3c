#include "cli/import/launcher.h"

#include <random>

#include "tests/cli/import/support.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

Result<Imported> from_script(Folder& folder, const std::string& text, Launcher launcher) {
  const auto script = read_script(text, "run.sh");
  if (!script) return std::unexpected(script.error());
  return import_script(folder.files, *script, launcher, "run.sh");
}

TEST(Launcher, AnArgumentThatCannotBeTakenLeavesTheRestMissing) {
  Folder folder;
  const auto imported =
      from_script(folder, "torchrun --nproc_per_node 2 t.py --bf16 Truepx --deepspeed ds.json\n",
                  Launcher::Torchrun);
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_GE(imported->missing.size(), 2u);
}

TEST(Launcher, ATorchrunScript) {
  Folder folder;
  auto imported = from_script(folder, R"(#!/bin/bash
# a comment with ' a quote
export MODEL="Qwen/Qwen2.5-0.5B"   # the model
GPUS=4
DIST="--nproc_per_node $GPUS
      --nnodes ${NODES:-2}"
ARGS=(--deepspeed ds.json
      --model_name_or_path "$MODEL")
if [ -n "$1" ]; then GPUS=9; fi
CUDA_VISIBLE_DEVICES=0,1 torchrun $DIST --master_port 6001 \
    --rdzv_conf 'a=b' finetune.py "${ARGS[@]}" \
    --data_path data/$NAME.json --bf16 True --learning_rate 1e-5 \
    --lora_r 64 --report_to none --seed 1 --seed 2 > log.txt 2>&1
)",
                              Launcher::Torchrun);
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {}));
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["workers"], (json{{"replicas", 2}, {"slotsPerWorker", 4}}));
  EXPECT_EQ(spec["deepspeed"]["configFrom"]["file"], "ds.json");
  const json training = {{"modelNameOrPath", "Qwen/Qwen2.5-0.5B"},
                         {"dataPath", "data/$NAME.json"},
                         {"bf16", true},
                         {"learningRate", 1e-5},
                         {"reportTo", "none"},
                         {"seed", 2}};
  EXPECT_EQ(spec["training"], training);
  for (const char* open : {"$NAME is not known", "NODES is not known here; its default \"2\"",
                           "spec.training.dataPath", "GPUS is set under a condition"})
    EXPECT_TRUE(any_contains(imported->left_open, open)) << open;
  for (const char* lost :
       {"--lora_r: LoRA is not turned on", "--rdzv_conf a=b", "--seed: given twice", "finetune.py"})
    EXPECT_TRUE(any_contains(imported->not_carried, lost)) << lost;
}

/// The file is from `accelerate config`; the expected ds_config was derived by hand.
TEST(Launcher, AnAccelerateLine) {
  Folder folder;
  folder.add("/acc.yaml", R"(compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  gradient_accumulation_steps: 2
  gradient_clipping: 1.0
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 2
num_processes: 8
use_cpu: false
)");
  auto imported =
      from_script(folder,
                  "accelerate launch --config_file /acc.yaml --num_processes 16 train.py "
                  "--model_name_or_path m --data_path d --output_dir o\n",
                  Launcher::Accelerate);
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {}));
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["workers"], (json{{"replicas", 2}, {"slotsPerWorker", 8}}));
  EXPECT_EQ(spec["training"]["bf16"], true);
  EXPECT_EQ(spec["deepspeed"]["config"], json::parse(R"({"train_batch_size": "auto",
      "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2,
      "gradient_clipping": 1.0, "zero_allow_untested_optimizer": true,
      "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "cpu"},
      "stage3_gather_16bit_weights_on_model_save": true}})"));
}

/// The file of transformers' page about Ulysses, and the equivalent options of accelerate.
TEST(Launcher, AcceleratesSequenceParallelismIsDeepSpeeds) {
  const char* file = R"(distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 4
deepspeed_config:
  zero_stage: 3
parallelism_config:
  parallelism_config_sp_size: 2
  parallelism_config_sp_backend: deepspeed
  parallelism_config_dp_shard_size: 2
  parallelism_config_sp_seq_length_is_variable: true
)";
  const std::string rest = " t.py --model_name_or_path m --data_path d --output_dir o\n";
  const auto imported = [&](const std::string& text, const std::string& options) {
    Folder folder;
    folder.add("/acc.yaml", text);
    auto made = from_script(folder, "accelerate launch --config_file /acc.yaml " + options + rest,
                            Launcher::Accelerate);
    EXPECT_TRUE(made) << made.error().to_string();
    return *made;
  };
  const auto size = [](const Imported& made) {
    return made.manifest["spec"]["deepspeed"]["config"].value("sequence_parallel_size", 1);
  };
  EXPECT_EQ(size(imported(file, "")), 2);
  EXPECT_EQ(size(imported(file, "--parallelism_config_sp_size 4")), 4);
  std::string plain = file;
  for (size_t at = 0; (at = plain.find("  parallelism_config_")) != std::string::npos;)
    plain.replace(at, 21, "  ");
  EXPECT_EQ(size(imported(plain, "")), 2) << "as ParallelismConfig has the names";
  std::string other = file;
  other.replace(other.find("sp_backend: deepspeed"), 21, "sp_backend: ring\n ");
  const Imported left = imported(other, "--parallelism_config_tp_size 2");
  EXPECT_EQ(size(left), 1);
  std::string all;
  for (const std::string& one : left.not_carried) all += one + "\n";
  EXPECT_NE(all.find("tp_size 2: tensor parallelism is not built"), std::string::npos) << all;
  EXPECT_NE(all.find("sp_size 2: sequence parallelism of another backend"), std::string::npos)
      << all;
}

/// accelerate uses its defaults for null and missing values: stage 2.
TEST(Launcher, NoValueOfAcceleratesFileIsTooOdd) {
  const std::string values[] = {"null",      "no",  "3",      "-1",   "bf16",
                                "DEEPSPEED", "[1]", "{a: 1}", "1e300"};
  const char* keys[] = {"distributed_type",  "mixed_precision",        "num_processes",
                        "num_machines",      "deepspeed_config",       "deepspeed_config_file",
                        "zero_stage",        "max_restarts",           "offload_param_device",
                        "gradient_clipping", "zero3_save_16bit_model", "parallelism_config"};
  std::mt19937 random(33);
  for (int i = 0; i < 3'000; ++i) {
    Folder folder;
    std::string text = "debug: false\n";
    for (const char* key : keys)
      if (random() % 2 == 0) text += std::string(key) + ": " + values[random() % 9] + "\n";
    folder.add("/acc.yaml", text);
    ASSERT_NO_THROW((void)from_script(
        folder, "accelerate launch --config_file /acc.yaml t.py --model_name_or_path m\n",
        Launcher::Accelerate))
        << text;
  }
  Folder folder;
  folder.add("/acc.yaml", "distributed_type: DEEPSPEED\nzero_stage: null\nnum_processes: 2\n");
  const auto plain = from_script(
      folder,
      "accelerate launch --config_file /acc.yaml t.py --model_name_or_path m --data_path d\n",
      Launcher::Accelerate);
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->manifest["spec"]["deepspeed"]["config"]["zero_optimization"]["stage"], 2);
}

TEST(Launcher, AccelerateWithAFileOrWithoutDeepSpeed) {
  Folder folder;
  auto file = from_script(folder,
                          "accelerate launch --use_deepspeed --deepspeed_config_file ds.json "
                          "--num_processes 2 t.py --model_name_or_path m --data_path d\n",
                          Launcher::Accelerate);
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->manifest["spec"]["deepspeed"]["configFrom"]["file"], "ds.json");
  auto plain =
      from_script(folder,
                  "python -m accelerate.commands.launch --multi_gpu --num_processes 2 t.py "
                  "--model_name_or_path m --data_path d\n",
                  Launcher::Accelerate);
  ASSERT_TRUE(plain) << plain.error().to_string();
  EXPECT_EQ(plain->manifest["spec"]["deepspeed"]["config"]["zero_optimization"]["stage"], 0);
  EXPECT_TRUE(any_contains(plain->left_open, "does not use DeepSpeed"));
}

/// All forms of FSDP settings in a line give the same ds_config.
TEST(Launcher, ShardingIsReadInEveryForm) {
  std::mt19937 draw(7);
  for (int round = 0; round < 60; ++round) {
    const bool full = draw() % 2 == 0, offload = draw() % 2 == 0;
    const std::string word = full ? "full_shard" : "shard_grad_op",
                      off = offload ? "true" : "false";
    const std::string tail = " t.py --model_name_or_path m --data_path d\n";
    const std::string upper = full ? "FULL_SHARD" : "SHARD_GRAD_OP", two = full ? "true" : "false";
    const std::string version_1 = "fsdp_config:\n  fsdp_sharding_strategy: " + upper +
                                  "\n  fsdp_offload_params: " + off + "\n";
    const std::string version_2 =
        "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: " + two +
        "\n  fsdp_offload_params: " + off + "\n";
    Folder folder;
    folder.add("acc.yaml", "distributed_type: FSDP\nnum_processes: 2\n" +
                               (draw() % 2 == 0 ? version_1 : version_2));
    for (const auto& [launcher, line] :
         {std::pair{Launcher::Torchrun,
                    "torchrun --nproc_per_node 2 t.py --model_name_or_path m "
                    "--data_path d --fsdp \"" +
                        word + " auto_wrap" + (offload ? " offload" : "") +
                        "\" --fsdp_transformer_layer_cls_to_wrap Layer\n"},
          std::pair{Launcher::Accelerate, "accelerate launch --config_file acc.yaml" + tail},
          std::pair{Launcher::Accelerate,
                    "accelerate launch --use_fsdp --num_processes 2 --fsdp_sharding_strategy " +
                        upper + " --fsdp_offload_params=" + off +
                        " --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP" + tail}}) {
      auto imported = from_script(folder, line, launcher);
      ASSERT_TRUE(imported) << line << imported.error().to_string();
      ASSERT_TRUE(finish(*imported, {})) << line;
      const json& config = imported->manifest["spec"]["deepspeed"]["config"];
      json zero = {{"stage", full ? 3 : 2}};
      if (offload) zero["offload_optimizer"] = {{"device", "cpu"}};
      if (offload && full) zero["offload_param"] = {{"device", "cpu"}};
      EXPECT_EQ(config["zero_optimization"], zero) << line;
      EXPECT_TRUE(any_contains(imported->left_open, "FSDP is ZeRO stage")) << line;
    }
  }
}

/// A ds_config that the user names replaces the one that the import makes.
TEST(Launcher, ANamedConfigReplacesTheOneThatIsMade) {
  const std::string tail = " t.py --model_name_or_path m --data_path d\n";
  for (const auto& [launcher, start] :
       {std::pair{Launcher::Torchrun, "torchrun --nproc_per_node 2"},
        {Launcher::DeepSpeed, "deepspeed --num_gpus 2"},
        {Launcher::Accelerate, "accelerate launch --num_processes 2 --use_fsdp"},
        {Launcher::Accelerate, "accelerate launch --num_processes 2 --use_megatron_lm"}}) {
    Folder folder;
    auto imported = from_script(folder, start + tail, launcher);
    ASSERT_TRUE(imported) << start << imported.error().to_string();
    ASSERT_TRUE(finish(*imported, {"spec.deepspeed.configFrom.file=ds.json"})) << start;
    EXPECT_EQ(imported->manifest["spec"]["deepspeed"],
              (json{{"configFrom", {{"file", "ds.json"}}}}))
        << start;
    EXPECT_FALSE(any_contains(imported->left_open, "no ds_config is named")) << start;
  }
  Folder folder;
  auto megatron = from_script(
      folder, "accelerate launch --num_processes 2 --use_megatron_lm" + tail, Launcher::Accelerate);
  ASSERT_TRUE(megatron);
  EXPECT_FALSE(finish(*megatron, {})) << "nothing here computes the same";
}

/// A script's own names of model and rows are used if the usual ones are absent.
TEST(Launcher, OtherNamesOfModelAndRows) {
  std::mt19937 draw(3);
  const auto one_of = [&](std::vector<std::string> names) { return names[draw() % names.size()]; };
  for (int round = 0; round < 40; ++round) {
    const std::string model =
        one_of({"model_path", "model_id", "base_model", "model", "model-name"});
    const std::string rows =
        one_of({"dataset_path", "train_data_path", "data_files", "train_file"});
    const std::string joint = draw() % 2 == 0 ? "=" : " ";
    Folder folder;
    auto imported = from_script(folder,
                                "torchrun t.py --" + model + joint + "m --" + rows + joint +
                                    "a.json --save_path out --deepspeed ds.json\n",
                                Launcher::Torchrun);
    ASSERT_TRUE(imported) << imported.error().to_string();
    ASSERT_TRUE(finish(*imported, {})) << model << " " << rows;
    const json expected = {{"modelNameOrPath", "m"}, {"dataPath", "a.json"}, {"outputDir", "out"}};
    EXPECT_EQ(imported->manifest["spec"]["training"], expected) << model << " " << rows;
    EXPECT_TRUE(any_contains(imported->left_open, "spec.training.outputDir: from --save_path"));
  }
  Folder folder;
  auto several = from_script(
      folder, "torchrun t.py --model m --data_files a.json b.json --bf16 --deepspeed d\n",
      Launcher::Torchrun);
  ASSERT_TRUE(several);
  EXPECT_EQ(several->manifest["spec"]["training"]["dataPath"], "a.json,b.json");
  EXPECT_EQ(several->manifest["spec"]["training"]["bf16"], true);
  auto both = from_script(
      folder, "torchrun t.py --model_path x --model_name_or_path m --data_path d --deepspeed d\n",
      Launcher::Torchrun);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->manifest["spec"]["training"]["modelNameOrPath"], "m");
  EXPECT_TRUE(any_contains(both->not_carried, "--model_path x"));
}

/// Qwen's scripts set values first; a loop over the script's arguments may replace them.
TEST(Launcher, AValueFromAboveALoopStays) {
  Folder folder;
  auto imported = from_script(folder, R"(MODEL="Qwen/Qwen-7B"
DATA="rows.json"
while [[ "$1" != "" ]]; do
  case $1 in
    -m | --model ) shift; MODEL=$1 ;;
    -d | --data ) shift; DATA=$1 ;;
  esac
  shift
done
torchrun --nproc_per_node $(nvidia-smi -L | wc -l) finetune.py --model_name_or_path $MODEL \
  --data_path $DATA --deepspeed ds.json
)",
                              Launcher::Torchrun);
  ASSERT_TRUE(imported) << imported.error().to_string();
  ASSERT_TRUE(finish(*imported, {}));
  const json& spec = imported->manifest["spec"];
  EXPECT_EQ(spec["training"]["modelNameOrPath"], "Qwen/Qwen-7B");
  EXPECT_EQ(spec["training"]["dataPath"], "rows.json");
  EXPECT_EQ(spec["workers"]["slotsPerWorker"], 1);
  for (const char* open : {"MODEL is set under a condition: its value before that is used",
                           "spec.workers.slotsPerWorker: 1", "nvidia-smi"})
    EXPECT_TRUE(any_contains(imported->left_open, open)) << open;
}

TEST(Launcher, TheScriptsNameSaysTheObjective) {
  Folder folder;
  const auto objective = [&](const std::string& script) {
    return from_script(folder, "torchrun " + script + " --model m --data_path d --deepspeed ds\n",
                       Launcher::Torchrun);
  };
  for (const auto& [script, expected] : {std::pair{"run_dpo.py", "dpo"},
                                         {"train_orpo.py", "orpo"},
                                         {"kto-train.py", "kto"},
                                         {"dpo.py", "dpo"},
                                         {"train.py", ""},
                                         {"run_sft.py", ""},
                                         {"adpo.py", ""}}) {
    const auto imported = objective(script);
    ASSERT_TRUE(imported) << script;
    EXPECT_EQ(imported->manifest["spec"]["training"].value("objective", ""), expected) << script;
  }
  for (const char* script : {"run_simpo.py", "train_grpo.py", "ppo.py"})
    EXPECT_FALSE(objective(script)) << script;
}

TEST(Launcher, PythonModulesAreTheSameLauncher) {
  Folder folder;
  for (const char* start : {"torchrun", "/opt/bin/torchrun", "python -m torch.distributed.run",
                            "python3.11 -u -m torch.distributed.launch --use_env"}) {
    const auto imported =
        from_script(folder,
                    std::string(start) +
                        " --nproc-per-node=2 --nnodes=1:4 t.py --deepspeed d --data_path x"
                        " --model_name_or_path m\n",
                    Launcher::Torchrun);
    ASSERT_TRUE(imported) << start << ": " << imported.error().to_string();
    EXPECT_EQ(
        imported->manifest["spec"]["workers"],
        (json{{"replicas", 4}, {"minReplicas", 1}, {"maxReplicas", 4}, {"slotsPerWorker", 2}}));
  }
}

TEST(Launcher, WhatALineLeavesOutIsAskedFor) {
  Folder folder;
  auto imported =
      from_script(folder, "torchrun --nproc_per_node $N t.py --data_path x\n", Launcher::Torchrun);
  ASSERT_TRUE(imported);
  const auto missing = finish(*imported, {});
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("--model_name_or_path"), std::string::npos);
  EXPECT_TRUE(any_contains(imported->left_open, "--nproc_per_node $N is not a number"));
  EXPECT_TRUE(any_contains(imported->left_open, "stage 0 is data parallelism"));
  imported = from_script(folder, "deepspeed t.py --model_name_or_path m --data_path x\n",
                         Launcher::DeepSpeed);
  ASSERT_TRUE(imported);
  const auto config = finish(*imported, {});
  ASSERT_FALSE(config) << "the script may make one";
  EXPECT_NE(config.error().message.find("--deepspeed FILE"), std::string::npos);
  EXPECT_FALSE(from_script(folder, "python train.py\n", Launcher::Torchrun));
  EXPECT_FALSE(from_script(folder, "echo 'torchrun\n", Launcher::Torchrun));
  EXPECT_FALSE(from_script(folder, "torchrun --no_such_option t.py\n", Launcher::Torchrun));
}

/// The launch in forms that real scripts use: in a variable, after eval or srun, inside a
/// function. Each gives the same job.
TEST(Launcher, OneLaunchWrittenInManyWays) {
  const std::string line =
      "torchrun --nproc_per_node 4 t.py --deepspeed ds.json --model_name_or_path m --data_path d";
  const std::string in_quotes =
      "CMD=\"torchrun --nproc_per_node 4 t.py \\\n  --deepspeed ds.json "
      "--model_name_or_path m \\\n  --data_path d\"\n";
  for (const std::string& script :
       {line, "eval " + line, "eval '" + line + "'", "bash -c \"" + line + "\"", in_quotes + "$CMD",
        in_quotes + "eval $CMD", in_quotes + "eval \"$CMD\" 2>&1 | tee log",
        in_quotes + "(cd src && eval ${CMD})", "CMD='(cd src && " + line + ")'\neval $CMD",
        in_quotes + "srun --jobid 12 -N 2 $CMD", "srun -N1 --gres gpu:4 bash -c '" + line + "'",
        in_quotes + "docker run --gpus all -v /a:/b image $CMD",
        "GPUS=2\n" + line.substr(0, 26) + "$((GPUS * 2))" + line.substr(27),
        "N=\"${M:-\"${L:-4}\"}\"\n" + line.substr(0, 26) + "$N" + line.substr(27), "uv run " + line,
        "if [ -d x ]; then\n  " + line + "\nfi",
        "train() {\n  " + line + " --seed ${1:-42}\n}\ntrain",
        "for s in 1 2; do\n" + line + "\ndone"}) {
    Folder folder;
    auto imported = from_script(folder, script + "\n", Launcher::Torchrun);
    ASSERT_TRUE(imported) << script << "\n" << imported.error().to_string();
    ASSERT_TRUE(finish(*imported, {})) << script;
    const json& spec = imported->manifest["spec"];
    EXPECT_EQ(spec["workers"]["slotsPerWorker"], 4) << script;
    EXPECT_EQ(spec["deepspeed"]["configFrom"]["file"], "ds.json") << script;
    EXPECT_EQ(spec["training"]["modelNameOrPath"], "m") << script;
    EXPECT_EQ(spec["training"]["dataPath"], "d") << script;
    const bool conditional =
        script.find(line) != 0 &&
        (script.starts_with("if") || script.starts_with("train") || script.starts_with("for"));
    EXPECT_EQ(any_contains(imported->left_open, "decides whether this line runs"), conditional)
        << script;
  }
}

/// A value that only a run knows remains one word, even in a variable that is split.
TEST(Launcher, ACommandsOutputIsOneWord) {
  Folder folder;
  auto imported =
      from_script(folder, R"(GPUS=$(python -c 'import torch; print(torch.cuda.device_count())')
DIST="
    --nproc_per_node $GPUS \
    --nnodes ${NODES:-1}
"
OUT=${OUT:-"out/lr${LR}-x"}
torchrun $DIST $MORE t.py --deepspeed ds.json --model_name_or_path m --data_path d --output_dir $OUT
)",
                  Launcher::Torchrun);
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_TRUE(any_contains(imported->left_open, "the launcher's $MORE"));
  EXPECT_TRUE(any_contains(imported->left_open, "spec.training.outputDir: out/lr${LR}-x"));
  EXPECT_TRUE(any_contains(imported->left_open,
                           "spec.workers.slotsPerWorker: 1; --nproc_per_node $(python -c"));
  imported = from_script(folder,
                         "torchrun --nproc_per_node 2 $SCRIPT --deepspeed ds.json "
                         "--model_name_or_path m --data_path d\n",
                         Launcher::Torchrun);
  ASSERT_TRUE(imported) << imported.error().to_string();
  EXPECT_TRUE(finish(*imported, {}));
  EXPECT_TRUE(any_contains(imported->not_carried, "$SCRIPT: the engine trains by itself"));
}

/// TRL and Trainer read arguments from a YAML file; the line's arguments follow them.
TEST(Launcher, ArgumentsInAFile) {
  for (const char* way : {"--config run.yaml", "--config=run.yaml", "run.yaml"}) {
    Folder folder;
    folder.add("run.yaml",
               "model_name_or_path: m\ndata_path: d\nbf16: yes\nlearning_rate: 1e-4\n"
               "max_length: 4_096\ngradient_checkpointing_kwargs:\n"
               "  use_reentrant: false\nlora_target_modules: [q_proj, v_proj]\n"
               "use_peft: true\nlora_r: 4\n");
    const bool whole = std::string(way) == "run.yaml";  // for Trainer the file is the only argument
    auto imported =
        from_script(folder,
                    "torchrun --nproc_per_node 2 t.py " + std::string(way) +
                        (whole ? "" : " --deepspeed ds.json --learning_rate 2e-4") + "\n",
                    Launcher::Torchrun);
    ASSERT_TRUE(imported) << way << imported.error().to_string();
    const json& training = imported->manifest["spec"]["training"];
    EXPECT_EQ(training["modelNameOrPath"], "m") << way;
    EXPECT_EQ(training["bf16"], true) << way;
    EXPECT_EQ(training["maxSeqLength"], 4096) << way;
    EXPECT_EQ(training["learningRate"], whole ? 1e-4 : 2e-4) << way;
    EXPECT_EQ(training["lora"]["targetModules"], (json{"q_proj", "v_proj"})) << way;
  }
  Folder folder;
  folder.add("lf.yaml", "model_name_or_path: m\nstage: sft\ndataset: d\n");
  for (const auto& [line, says] :
       {std::pair{"torchrun --nproc_per_node 2 src/train.py lf.yaml",
                  "dsj import llamafactory lf.yaml"},
        std::pair{"torchrun --nproc_per_node 2 t.py --config none.yaml", "none.yaml"}}) {
    const auto imported = from_script(folder, line, Launcher::Torchrun);
    ASSERT_FALSE(imported) << line;
    EXPECT_NE(imported.error().to_string().find(says), std::string::npos)
        << imported.error().to_string();
  }
}

/// The directories of the start and of the script become relative paths; other commands are kept.
TEST(Launcher, DirectoriesThatScriptsAskFor) {
  for (const auto& [written, path] : std::map<std::string, std::string>{
           {"`pwd`/ds.json", "./ds.json"},
           {"$(pwd)/ds.json", "./ds.json"},
           {"$PWD/ds.json", "./ds.json"},
           {"$(dirname $0)/ds.json", "here/ds.json"},
           {"\"$(dirname \"${BASH_SOURCE[0]}\")/ds.json\"", "here/ds.json"},
           {"$(cd \"$(dirname \"$0\")\" && pwd)/ds.json", "here/ds.json"},
           {"$(cd \"$(dirname \"${BASH_SOURCE[0]}\")/..\" >/dev/null 2>&1 && pwd)/ds.json",
            "here/../ds.json"},
           {"$(cd /root && pwd)/ds.json", "$(cd /root && pwd)/ds.json"},
           {"$(dirname $1)/ds.json", "$(dirname $1)/ds.json"}}) {
    const auto script = read_script("D=" + written + "\nrun \"$D\"\n", "here/run.sh");
    ASSERT_TRUE(script) << written;
    EXPECT_EQ(script->commands.at(0).words.at(1), path) << written;
  }
  const auto here = read_script("run $(dirname $0)/x $(expr 64 / 2 \\* 4)\n", "run.sh");
  ASSERT_TRUE(here);
  EXPECT_EQ(here->commands.at(0).words, (std::vector<std::string>{"run", "./x", "128"}));
}

/// A command's environment has what is set before it or exported; later lines see only exports.
TEST(Launcher, TheEnvironmentOfACommand) {
  const auto script = read_script("A=1\nexport B=2\nC=$A D=4 run\nrun\n", "run.sh");
  ASSERT_TRUE(script);
  using Values = std::map<std::string, std::string>;
  EXPECT_EQ(script->commands.at(0).environment, (Values{{"B", "2"}, {"C", "1"}, {"D", "4"}}));
  EXPECT_EQ(script->commands.at(1).environment, (Values{{"B", "2"}}));
}

TEST(Launcher, AHostileScriptIsRefusedNotFollowed) {
  std::string nested, grown = "A=" + std::string(60'000, 'a') + "\necho";
  for (int i = 0; i < 100'000; ++i) nested += "a=(";
  for (int i = 0; i < 1'000; ++i) grown += " \"$A\"";
  EXPECT_FALSE(read_script(nested, "run.sh"));
  const auto script = read_script(grown, "run.sh");
  ASSERT_FALSE(script);
  EXPECT_NE(script.error().message.find("too long"), std::string::npos);
  EXPECT_FALSE(read_script("echo \xff", "run.sh"));
  std::string evals, defaults, folders = "echo ";
  for (int i = 0; i < 10'000; ++i) folders += "$(cd ";
  folders += std::string(10'000, ')');
  for (int i = 0; i < 10'000; ++i) evals += "A=\"eval $A$A\"\neval $A\n";
  for (int i = 0; i < 10'000; ++i) defaults += "${A:-";
  for (const std::string& text : {evals, folders, "echo " + defaults + std::string(10'000, '}'),
                                  "A='" + defaults + "'\necho $A"})
    (void)read_script(text, "run.sh");  // terminates, within its limits
}

/// DeepSpeed's launcher starts a rank for each GPU that CUDA_VISIBLE_DEVICES leaves, torchrun's gpu and accelerate too.
TEST(Launcher, TheDevicesThatALineNames) {
  struct Line {
    std::string words;
    Launcher launcher;
    int slots;
    std::string open;  ///< the GPUs that the user has to give to the ranks
  };
  const std::string rest = " train.py --deepspeed ds.json --model_name_or_path m --data_path d";
  for (const Line& line : {
           Line{"CUDA_VISIBLE_DEVICES=1,3 deepspeed", Launcher::DeepSpeed, 2, "1,3"},
           Line{"export CUDA_VISIBLE_DEVICES=0,1,2,3\ndeepspeed", Launcher::DeepSpeed, 4, ""},
           Line{"CUDA_VISIBLE_DEVICES=$GPUS deepspeed", Launcher::DeepSpeed, 1, "$GPUS"},
           Line{"CUDA_VISIBLE_DEVICES=0,1,2 deepspeed --num_gpus 2", Launcher::DeepSpeed, 2, ""},
           Line{"deepspeed --include localhost:1,2", Launcher::DeepSpeed, 2, "1,2"},
           Line{"deepspeed --include localhost:0,1", Launcher::DeepSpeed, 2, ""},
           Line{"CUDA_VISIBLE_DEVICES=2 torchrun --nproc_per_node 1", Launcher::Torchrun, 1, "2"},
           Line{"CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=gpu", Launcher::Torchrun, 2,
                ""},
           Line{"CUDA_VISIBLE_DEVICES=4,5,6 accelerate launch", Launcher::Accelerate, 3, "4,5,6"},
       }) {
    SCOPED_TRACE(line.words);
    Folder folder;
    const auto script = read_script(line.words + rest, "run.sh");
    ASSERT_TRUE(script);
    const auto imported = import_script(folder.files, *script, line.launcher, "run.sh");
    ASSERT_TRUE(imported) << imported.error().to_string();
    EXPECT_EQ(imported->manifest["spec"]["workers"]["slotsPerWorker"], line.slots);
    EXPECT_EQ(any_contains(imported->left_open, "GPUs " + line.open + ": CUDA_VISIBLE_DEVICES="),
              !line.open.empty());
  }
}

TEST(Launcher, DeepSpeedTakesItsWorkersFromHostsAndFilters) {
  Folder folder;
  folder.add("hosts", "# two\nw0 slots=4\n\nw1 slots=4  # the second\n");
  const auto workers = [&](const std::string& options) {
    auto imported = import_line(
        folder.files,
        [&] {
          std::vector<std::string> words = {"deepspeed"};
          std::string word;
          for (const char c : options +
                                  " train.py --deepspeed_config ds.json"
                                  " --model_name_or_path m"
                                  " --data_path d ") {
            if (c != ' ') {
              word += c;
            } else if (!word.empty()) {
              words.push_back(std::move(word));
              word.clear();
            }
          }
          return words;
        }(),
        Launcher::DeepSpeed, "line");
    EXPECT_TRUE(imported) << imported.error().to_string();
    if (!imported) return std::string("error");
    if (const auto done = finish(*imported, {}); !done) return done.error().message;
    const json found = imported->manifest["spec"]["workers"];
    return found["replicas"].dump() + "x" + found["slotsPerWorker"].dump();
  };
  EXPECT_EQ(workers("--num_gpus 4"), "1x4");
  EXPECT_EQ(workers("--num_nodes 2 --num_gpus=8"), "2x8");
  EXPECT_EQ(workers("-H hosts"), "2x4");
  EXPECT_EQ(workers("--hostfile hosts --num_gpus 2"), "2x2");
  EXPECT_EQ(workers("--hostfile hosts --num_nodes 1"), "1x4");
  EXPECT_EQ(workers("--hostfile hosts --include w1:0,2"), "1x2");
  EXPECT_EQ(workers("--hostfile hosts --exclude w0"), "1x4");
  EXPECT_EQ(workers("--include localhost:0,1,3"), "1x3");
  EXPECT_NE(workers("--hostfile hosts --exclude w0:1").find("w0: 3, w1: 4"), std::string::npos);
  EXPECT_EQ(workers("--master_port 1"), "1x1") << "the machine's devices: left open";
  EXPECT_EQ(workers("--include localhost:$DEVICES"), "1x1");
}

}  // namespace
}  // namespace dsj::jobimport
