// What dsj-make-quickstart writes: rows without overlap, answers that are right, a tokenizer that
// our reader takes, weights that follow from the seed.
#include "tools/quickstart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/data/shapes/prompt.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/weights/weight_source.h"
#include "tools/bpe_trainer.h"
#include "tools/tasks.h"

namespace dsj::tools {
namespace {

TaskData data_of(uint64_t seed) {
  auto data = make_task_data({.seed = seed, .train_rows = 3000, .heldout_per_task = 200});
  EXPECT_TRUE(data) << data.error().to_string();
  return *data;
}

TEST(Tasks, FollowFromTheSeed) {
  EXPECT_EQ(data_of(1).train, data_of(1).train);
  EXPECT_NE(data_of(1).train, data_of(2).train);
}

TEST(Tasks, HeldOutQuestionsAreNotTrainedOn) {
  const TaskData data = data_of(3);
  std::set<std::pair<std::string, std::string>> trained;
  for (const Example& row : data.train) trained.insert({row.instruction, row.input});
  ASSERT_EQ(data.heldout.size(), 3u);
  for (const HeldOut& held : data.heldout) {
    EXPECT_EQ(held.examples.size(), 200u) << held.task;
    std::set<std::pair<std::string, std::string>> questions;
    for (const Example& row : held.examples) {
      EXPECT_FALSE(trained.contains({row.instruction, row.input})) << row.instruction;
      questions.insert({row.instruction, row.input});
    }
    EXPECT_EQ(questions.size(), 200u) << held.task;
  }
}

TEST(Tasks, AnswersAreRight) {
  int sums = 0, reversals = 0;
  for (const Example& row : data_of(4).train) {
    int a = 0, b = 0;
    if (std::sscanf(row.instruction.c_str(), "Add %d and %d.", &a, &b) == 2) {
      ++sums;
      EXPECT_TRUE(row.output.ends_with(", " + std::to_string(a + b))) << row.output;
    } else if (!row.input.empty()) {
      ++reversals;
      EXPECT_EQ(std::string(row.output.rbegin(), row.output.rend()), row.input);
    }
  }
  EXPECT_EQ(sums, 1500);
  EXPECT_EQ(reversals, 750);
}

TEST(Tasks, RefuseMoreHeldOutThanThereIs) {
  const auto data = make_task_data({.seed = 1, .train_rows = 10, .heldout_per_task = 5000});
  ASSERT_FALSE(data);
  EXPECT_THAT(data.error().message, testing::HasSubstr("5000 held-out questions"));
}

TEST(Bpe, LearnsTheWordsAndKeepsCapitalsApart) {
  const auto vocabulary = learn_bpe({"go to the garden", "the garden ABAB", ":ABAB"}, 100);
  ASSERT_TRUE(vocabulary) << vocabulary.error().to_string();
  EXPECT_THAT(vocabulary->tokens, testing::Contains(" garden"));
  EXPECT_THAT(vocabulary->tokens, testing::Not(testing::Contains("AB")));
  EXPECT_EQ(vocabulary->tokens.size() - 256, vocabulary->merges.size());
}

struct Written {
  MemoryFiles files;
  QuickstartSummary summary;
  explicit Written(uint64_t seed) {
    const auto result = write_quickstart(
        files, {.output = "/q", .seed = seed, .size = "tiny", .rows = 300, .heldout = 20});
    EXPECT_TRUE(result) << result.error().to_string();
    if (result) summary = *result;
  }
};

TEST(Quickstart, TheSameSeedWritesTheSameBytes) {
  Written a(7), b(7), c(8);
  for (const char* name : {"/q/model/model.safetensors", "/q/model/tokenizer.json",
                           "/q/data/train.json", "/q/data/heldout-sums.json", "/q/job.yaml"}) {
    EXPECT_EQ(a.files.read_all(name).value(), b.files.read_all(name).value()) << name;
  }
  EXPECT_NE(a.files.read_all("/q/model/model.safetensors").value(),
            c.files.read_all("/q/model/model.safetensors").value());
}

TEST(Quickstart, WeightsAreTheShapeOfTheConfig) {
  Written written(1);
  const auto config = nlohmann::json::parse(written.files.read_all("/q/model/config.json").value());
  EXPECT_EQ(config["vocab_size"].get<int64_t>() % 64, 0);
  const auto source = weights::WeightSource::open(written.files, "/q/model");
  ASSERT_TRUE(source) << source.error().to_string();
  int64_t elements = 0;
  for (const auto& tensor : source->tensors()) elements += tensor.elements;
  EXPECT_EQ(elements, written.summary.parameters);
}

TEST(Quickstart, TheTokenizerIsReadAndKeepsPromptsShort) {
  const std::string directory =
      (std::filesystem::temp_directory_path() / ("dsj-quickstart-" + std::to_string(getpid())))
          .string();
  PosixFiles files;
  const auto written = write_quickstart(files, {.output = directory, .size = "tiny", .rows = 300});
  ASSERT_TRUE(written) << written.error().to_string();
  const auto tokenizer = data::Tokenizer::load(directory + "/model");
  ASSERT_TRUE(files.remove_all(directory));
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  const auto prompt = (*tokenizer)
                          ->encode(
                              "Below is an instruction that describes a task. Write a response "
                              "that appropriately completes "
                              "the request.\n\n### Instruction:\n");
  ASSERT_TRUE(prompt) << prompt.error().to_string();
  EXPECT_LE(prompt->size(), 36u);
  EXPECT_EQ((*tokenizer)->encode(":CAB").value().size(), 4u);
  EXPECT_EQ((*tokenizer)->encode("37+58").value().size(), 5u);
  EXPECT_EQ((*tokenizer)->eos_id(), written->shape.end_of_text);
  EXPECT_EQ((*tokenizer)->stop_ids(),
            std::vector<int32_t>{static_cast<int32_t>(written->shape.end_of_text)});
}

}  // namespace
}  // namespace dsj::tools
