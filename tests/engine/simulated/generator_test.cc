// Answers on the path of a GPU: the CPU's ids, for every fixture of a model type, alone, in a batch and over turns.
#include "engine/train/answer/generator.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/comm/single.h"
#include "tests/engine/simulated/late.h"
#include "tests/engine/support/fixtures.h"

namespace dsj::train {
namespace {

using Ids = std::vector<int32_t>;

struct Heard {
  std::vector<Ids> batch;
  Ids first, second;  ///< turns of a conversation
};

Heard answers(const layout::ModelConfig& model, const std::string& name, at::Device place) {
  const c10::AutoGradMode no_autograd(false);
  const auto group = comm::make_single(place);
  Generator generator(model, *group, std::nullopt, place);
  PosixFiles files;
  const auto source = weights::WeightSource::open(files, testing_support::fixture(name));
  EXPECT_TRUE(source && generator.load(*source)) << name;
  std::vector<Ids> prompts{{5, 9, 40, 2}, {7, 7, 7}, {61}};
  if (Generator::takes_one_length(model)) prompts = {{5, 9, 40}, {7, 7, 7}};
  Heard all{.batch = generator.complete(prompts, 5, {}), .first = {}, .second = {}};
  const auto go_on = [&](const Ids& prompt) {
    return generator.go_on(prompt, 4, {}, Generator::best, [](auto) { return true; });
  };
  Ids prompt{3, 14, 15, 9};
  all.first = go_on(prompt);
  prompt.insert(prompt.end(), all.first.begin(), all.first.end());
  prompt.insert(prompt.end(), {2, 6});
  all.second = go_on(prompt);
  return all;
}

TEST(GeneratorOnAGpu, AnswersAsTheCpuDoes) {
  int models = 0;
  for (const auto& one : std::filesystem::directory_iterator(testing_support::fixture("."))) {
    const std::string name = one.path().filename().string();
    if (!name.starts_with("tiny-") || !std::filesystem::exists(one.path() / "config.json"))
      continue;
    SCOPED_TRACE(name);
    const auto model = layout::read_model_config(one.path().string());
    ASSERT_TRUE(model);
    const Heard here = answers(*model, name, at::kCPU);
    simulated::Late device(0, /*seed=*/1);
    const Heard there = answers(*model, name, device.device());
    device.drain();
    EXPECT_TRUE(device.findings().empty()) << device.findings()[0];
    EXPECT_EQ(here.batch, there.batch);
    EXPECT_EQ(here.first, there.first);
    EXPECT_EQ(here.second, there.second);
    ++models;
  }
  EXPECT_GT(models, 100);
}

}  // namespace
}  // namespace dsj::train
