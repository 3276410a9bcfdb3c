// sparse_gradients in whole steps: the losses are those of dense gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using dsconfig::Precision;

TEST(SparseGradients, LossesAreThoseOfDenseGradients) {
  for (const char* model : {"tiny-qwen2", "tiny-llama"}) {
    for (const int stage : {0, 1, 2}) {
      for (const int world : {2, 3}) {
        for (const int64_t accumulation : {1, 2}) {
          SmallRun run{.model = model,
                       .world = world,
                       .steps = 8,
                       .config = small_config(stage, 1, accumulation)};
          const auto dense = run_small(run);
          run.config.sparse_gradients = true;
          const auto sparse = run_small(run);
          EXPECT_LE(apart(sparse, dense), 1e-6) << model << " stage " << stage;
          for (const auto& [name, value] : dense.weights)
            EXPECT_LE((sparse.weights.at(name) - value).abs().max().item<double>(), 1e-5) << name;
        }
      }
    }
  }
}

/// prescale and predivide act on rows as on whole gradients; in DeepSpeed a row's mean is too large
/// by the factor.
TEST(SparseGradients, AveragingIsThatOfDenseGradients) {
  SmallRun run{.world = 2, .steps = 4, .config = small_config(0)};
  const auto dense = run_small(run);
  run.config.sparse_gradients = true;
  run.config.averaging.predivide = 2;
  EXPECT_LE(apart(run_small(run), dense), 1e-6);
  run.config.averaging = {.prescale = true};
  EXPECT_LE(apart(run_small(run), dense), 1e-6);
}

TEST(SparseGradients, SixteenBitsAndMixedTypesTrain) {
  for (const int stage : {0, 1, 2}) {
    for (const auto accumulate : {Precision::Bf16, Precision::Fp32}) {
      SmallRun run{.world = 2, .steps = 6, .config = small_config(stage, 1, 2)};
      run.config.precision = run.config.communication_dtype = Precision::Bf16;
      run.config.grad_accum_dtype = accumulate;
      const auto dense = run_small(run);
      run.config.sparse_gradients = true;
      EXPECT_LE(apart(run_small(run), dense), 1e-3) << "sums of two ranks round alike";
    }
  }
}

TEST(SparseGradients, ATiedEmbeddingIsSentDense) {
  SmallRun run{.model = "tiny-qwen2-tied", .world = 2, .steps = 4, .config = small_config(0)};
  const auto dense = run_small(run);
  run.config.sparse_gradients = true;
  const auto sparse = run_small(run);
  EXPECT_EQ(sparse.losses, dense.losses) << "the same bits: nothing has changed";
}

}  // namespace
}  // namespace dsj::train
