#include "job/import/launcher.h"

#include "tests/job/import/support.h"

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
  for (const char* lost : {"--lora_r: LoRA is not turned on", "--rdzv_conf a=b",
                           "--seed: given twice", "finetune.py"})
    EXPECT_TRUE(any_contains(imported->not_carried, lost)) << lost;
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
  for (const char* what : {"--nproc_per_node $N", "--model_name_or_path", "--deepspeed FILE"})
    EXPECT_NE(missing.error().message.find(what), std::string::npos) << what;
  EXPECT_FALSE(from_script(folder, "python train.py\n", Launcher::Torchrun));
  EXPECT_FALSE(from_script(folder, "echo 'torchrun\n", Launcher::Torchrun));
  EXPECT_FALSE(from_script(folder, "torchrun --no_such_option t.py\n", Launcher::Torchrun));
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
  EXPECT_NE(workers("--master_port 1").find("the machine's devices"), std::string::npos);
}

}  // namespace
}  // namespace dsj::jobimport
