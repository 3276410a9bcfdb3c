// A device without kernels of its own runs libtorch's operations: whole runs on that port give the
// losses of the CPU's kernels.
#include "tests/engine/support/oracle_port.h"

#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

void expect_equal_runs(const SmallRun& run, double tolerance) {
  const RunResult kernels = run_small(run);
  const RunResult oracle = testing_support::by_oracle([&] { return run_small(run); });
  ASSERT_EQ(kernels.losses.size(), static_cast<size_t>(run.steps));
  for (size_t i = 0; i < kernels.losses.size(); ++i) {
    EXPECT_NEAR(oracle.losses[i], kernels.losses[i], tolerance * kernels.losses[i]) << i;
    EXPECT_NEAR(oracle.norms[i], kernels.norms[i], 10 * tolerance * kernels.norms[i]) << i;
  }
}

TEST(OraclePort, GivesTheLossesOfTheKernels) {
  for (const char* model : {"tiny-qwen2", "tiny-qwen3", "tiny-gpt2"}) {
    SCOPED_TRACE(model);
    expect_equal_runs({.model = model, .config = small_config(3)}, 1e-5);
  }
}

TEST(OraclePort, RunsLambWithoutAHostsSums) {
  for (const int stage : {0, 2}) {
    SmallRun run{.config = small_config(stage)};
    run.config.optimizer.kind = dsconfig::OptimizerKind::Lamb;
    expect_equal_runs(run, 1e-5);
  }
}

}  // namespace
}  // namespace dsj::train
