// NCCL on one GPU: a world of one rank, which is all that such a machine can make of it. Each operation, and
// steps of stage 3, which gathers and reduces over it. Two GPUs and more: scripts/gpu_prove.sh.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/comm/single.h"
#include "engine/device/device.h"
#include "engine/train/step/step.h"
#include "engine/weights/weight_source.h"
#include "engine/zero/model_state.h"
#include "tests/engine/comm/ranks.h"
#include "tests/engine/gpu/gpu.h"

namespace dsj::gpu {
namespace {

struct Step {
  double loss, norm;
};

/// Four steps of a fixture in fp32, two micro-steps each.
std::vector<Step> steps(int stage, comm::Collectives& group, at::Device place) {
  const c10::AutoGradMode no_autograd(false);
  const std::string folder = source_dir() + "/tests/fixtures/tiny-qwen2";
  const auto model = layout::read_model_config(folder).value();
  dsconfig::ResolvedConfig config;
  config.gradient_accumulation_steps = 2;
  config.zero.stage = stage;
  config.zero.overlap_comm = true;
  config.zero.param_persistence_threshold = 64;
  config.optimizer.lr = 2e-3;
  zero::ModelState state(model, config, place, group);
  train::Stepper stepper(model, config, {}, state, place);
  PosixFiles files;
  const auto source = weights::WeightSource::open(files, folder);
  EXPECT_TRUE(source && state.load(*source));
  at::manual_seed(5);
  std::vector<Step> seen;
  for (int64_t step = 0; step < 4; ++step) {
    std::vector<models::MicroBatch> batches;
    for (int i = 0; i < 2; ++i) {
      const std::vector<int64_t> lengths = {6, 3, 8};
      const at::Tensor ids = at::randint(0, model.vocab_size, {17}, at::kLong);
      batches.push_back({device::upload(ids, place), ids, models::RowBounds(lengths, place)});
    }
    const auto done =
        stepper.run({.micro_batches = batches,
                     .step = step,
                     .rates = {.lr = config.optimizer.lr, .previous_lr = config.optimizer.lr},
                     .tokens = 34});
    seen.push_back({done.loss, done.grad_norm});
  }
  return seen;
}

void expect_near(const std::vector<Step>& got, const std::vector<Step>& want, double apart) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i].loss, want[i].loss, apart * want[i].loss) << "step " << i;
    EXPECT_NEAR(got[i].norm, want[i].norm, 10 * apart * want[i].norm) << "step " << i;
  }
}

/// Runs everywhere: what the GPU is compared with.
TEST(Stage3OfOneRank, HasTheStepsOfStage0) {
  const auto group = comm::make_single(at::kCPU);
  expect_near(steps(3, *group, at::kCPU), steps(0, *group, at::kCPU), 0);
}

class NcclOfOneRank : public testing::Test {
 protected:
  void SetUp() override {
    DSJ_NEEDS_GPU();
    auto made = comm::make_collectives({.master_port = listener_.port,
                                        .store_listen_fd = dup(listener_.fd),
                                        .backend = "nccl",
                                        .device = *gpu().place});
    ASSERT_TRUE(made) << made.error().to_string();
    group = std::move(*made);
    ASSERT_EQ(group->backend(), "nccl");
  }
  void TearDown() override {
    if (group) group->shutdown();
  }
  std::unique_ptr<comm::Collectives> group;

 private:
  const comm::testing_support::Listener listener_;
};

TEST_F(NcclOfOneRank, DoesEveryOperation) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor in = at::arange(5, at::TensorOptions(*gpu().place).dtype(type));
    at::Tensor all = at::zeros_like(in), part = at::zeros_like(in), other = at::zeros_like(in);
    const at::Tensor sum = in.clone(), same = in.clone();
    const auto works = {group->all_gather(all, in, {}),
                        group->reduce_scatter(part, in.clone(), comm::Op::Sum, {}),
                        group->all_to_all(other, in, {}), group->all_reduce(sum, comm::Op::Max, {}),
                        group->broadcast(same, 0, {})};
    for (const auto& work : works) work->wait();
    for (const at::Tensor& got : {all, part, other, sum, same}) EXPECT_TRUE(got.equal(in)) << type;
  }
  group->barrier({})->wait();
}

TEST_F(NcclOfOneRank, HasTheStepsOfStage3) {
  const auto alone = comm::make_single(*gpu().place);
  const auto here = comm::make_single(at::kCPU);
  const auto got = steps(3, *group, *gpu().place);
  expect_near(got, steps(3, *alone, *gpu().place), 1e-5);
  expect_near(got, steps(3, *here, at::kCPU), 1e-4);
}

}  // namespace
}  // namespace dsj::gpu
