// Random-LTD: tokens per second of whole steps with half the tokens dropped in all layers but the
// first and the last, against the same steps without. One rank, a model of 10 layers and 18 M
// parameters, rows of 512 tokens, fp32. Both sides in turn, five rounds; medians.
//
// What a layer does is in proportion to its tokens, and attention to their square. So the ratio is
// at most that of the layers' tokens, 10 / (2 + 8 / 2) = 1.67, less the embedding, the head and the
// optimizer, which random-LTD leaves as they are, and more for attention.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "bench/timing.h"
#include "common/files/posix_files.h"
#include "engine/comm/collectives.h"
#include "engine/memory/counting_allocator.h"
#include "engine/train/step/step.h"
#include "engine/weights/weight_source.h"
#include "tools/random_model.h"

namespace {

using namespace dsj;

constexpr int64_t kRows = 4, kTokens = 512;
constexpr int kRounds = 5;
constexpr tools::ModelShape kShape = {.hidden = 384,
                                      .layers = 10,
                                      .heads = 6,
                                      .kv_heads = 6,
                                      .inner = 1024,
                                      .vocabulary = 1024,
                                      .positions = kTokens};

template <typename T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench_random_ltd: %s\n", result.error().to_string().c_str());
  std::exit(2);
}
void must(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "bench_random_ltd: %s\n", status.error().to_string().c_str());
  std::exit(2);
}

dsconfig::ResolvedConfig config_of(bool drops) {
  dsconfig::ResolvedConfig config;
  config.micro_batch_size = kRows;
  config.optimizer.lr = 1e-4;
  if (!drops) return config;
  dsconfig::RandomLtdConfig ltd{.min = kTokens / 2, .max = kTokens / 2};
  for (int64_t layer = 1; layer + 1 < kShape.layers; ++layer) ltd.layers.push_back(layer);
  config.data_efficiency.random_ltd = ltd;
  return config;
}

models::MicroBatch batch() {
  const at::Tensor ids = at::randint(kShape.vocabulary, {kRows * kTokens}, at::kLong);
  return {ids, ids.clone(),
          models::RowBounds(std::vector<int64_t>(kRows, kTokens), at::Device(at::kCPU))};
}

/// A model of its own and its steps.
struct Side {
  const layout::ModelConfig model;
  const dsconfig::ResolvedConfig config;
  zero::ModelState state;
  train::Stepper stepper;
  int64_t steps = 0;

  Side(const std::string& directory, bool drops, comm::Collectives& group)
      : model(must(layout::read_model_config(directory))),
        config(config_of(drops)),
        state(model, config, at::kCPU, group),
        stepper(model, config, {}, state, at::kCPU) {
    PosixFiles files;
    must(state.load(must(weights::WeightSource::open(files, directory))));
  }
  void step(const models::MicroBatch& rows) {
    stepper.run({.micro_batches = std::span(&rows, 1),
                 .step = steps++,
                 .rates = {.lr = config.optimizer.lr, .previous_lr = config.optimizer.lr},
                 .tokens = kRows * kTokens});
  }
};

}  // namespace

int main() {
  memory::install();
  c10::AutoGradMode no_autograd(false);
  PosixFiles files;
  const std::string directory =
      (std::filesystem::temp_directory_path() / ("bench_random_ltd_" + std::to_string(getpid())))
          .string();
  must(files.make_dirs(directory));
  must(tools::write_random_model(files, directory, kShape, 1));
  const auto group = must(comm::make_collectives({.rank = 0, .world = 1}));
  Side all(directory, false, *group), half(directory, true, *group);
  std::filesystem::remove_all(directory);
  const models::MicroBatch rows = batch();
  all.step(rows);  // buffers, threads
  half.step(rows);
  std::vector<double> all_seconds, half_seconds;
  for (int round = 0; round < kRounds; ++round) {
    all_seconds.push_back(bench::seconds_of([&] { all.step(rows); }));
    half_seconds.push_back(bench::seconds_of([&] { half.step(rows); }));
  }
  const double tokens = kRows * kTokens;
  const double without = tokens / bench::median(all_seconds);
  const double with = tokens / bench::median(half_seconds);
  std::printf(
      "random-LTD, half the tokens in 8 of 10 layers: %.0f tokens/s, without %.0f, "
      "ratio %.2f (all steps of either side saw the same rows)\n",
      with, without, with / without);
  return 0;
}
