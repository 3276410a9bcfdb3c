// Whole layers and the head on a GPU against the CPU's: flash attention over ragged rows, products,
// our kernels, one after the other on one stream.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/comm/single.h"
#include "engine/device/device.h"
#include "engine/models/ops/gemm.h"
#include "engine/models/unit/unit.h"
#include "engine/optim/optimizer.h"
#include "engine/weights/weight_source.h"
#include "engine/zero/model_state.h"
#include "tests/engine/gpu/gpu.h"

namespace dsj::models {
namespace {

struct Passed {
  std::vector<at::Tensor> tensors;  ///< on the CPU, fp32
  double loss = 0;
};

/// One micro-step of a fixture at stage 0 and one update, of all layers.
Passed pass(const std::string& name, at::Device place, dsconfig::Precision precision) {
  const std::string folder = gpu::source_dir() + "/tests/fixtures/" + name;
  const auto model = layout::read_model_config(folder).value();
  dsconfig::ResolvedConfig config;
  config.precision = config.grad_accum_dtype = config.communication_dtype = precision;
  config.zero.stage = 0;
  const at::ScalarType type = precision == dsconfig::Precision::Bf16 ? at::kBFloat16 : at::kFloat;
  const auto group = comm::make_single(place);
  zero::ModelState state(model, config, place, *group);
  PosixFiles files;
  const auto source = weights::WeightSource::open(files, folder);
  EXPECT_TRUE(source && state.load(*source));
  const std::vector<int64_t> lengths = {11, 3, 16, 5};
  const RowBounds rows(lengths, place);
  at::manual_seed(3);
  const at::Tensor ids = at::randint(0, model.vocab_size, {rows.tokens()}, at::kLong);
  at::Tensor labels = ids.clone();
  labels.narrow(0, 0, 9).fill_(-100);
  const MicroBatch batch(ids.to(place), labels, rows);
  ops::Ropes ropes(model, at::TensorOptions().dtype(type).device(place));
  const auto layer = make_layer(model);
  const EmbeddingCall embedding{.rows = &batch.rows(), .dropout_key = {}};
  const int head = static_cast<int>(state.units().size()) - 1;
  const auto call = [&](int unit) {
    return LayerCall{.layer = unit - 1,
                     .rows = &batch.rows(),
                     .rope = ropes.of(unit - 1, batch.rows().positions_end()),
                     .dropout_key = {},
                     .outputs = unit == head - 1 ? batch.last_outputs() : nullptr};
  };
  for (int unit = 0; unit <= head; ++unit) state.wait_for(unit);
  Passed passed;
  const auto keep = [&](const at::Tensor& tensor) {
    passed.tensors.push_back(tensor.to(at::kCPU, at::kFloat).clone());
  };
  std::vector<LayerSaved> saved(static_cast<size_t>(head));
  at::Tensor x = embedding_forward(state.unit(0), model, batch.input_ids(), embedding);
  for (int unit = 1; unit < head; ++unit)
    x = layer->forward(state.unit(unit), x, call(unit), &saved[static_cast<size_t>(unit)]);
  keep(x);
  auto turned = head_turn(state.unit(head), model, x, batch, 1.0);
  passed.loss = turned.loss_sum.item<double>() / static_cast<double>(turned.targets);
  at::Tensor dx = std::move(turned.dx);
  for (int unit = head - 1; unit > 0; --unit)
    dx = layer->backward(state.unit(unit), dx, call(unit),
                         std::move(saved[static_cast<size_t>(unit)]));
  keep(dx);
  embedding_backward(state.unit(0), model, batch.input_ids(), dx, embedding);
  keep(state.unit(0).grad(0).tensor);
  for (int flat = 0; flat < static_cast<int>(state.plan().flats.size()); ++flat)
    state.reduce(flat, true);
  state.finish_reductions();
  keep(state.owned_sum_of_squares());
  state.step({.rates = {.lr = 1e-2, .previous_lr = 1e-2}});
  for (int unit = 0; unit <= head; ++unit) state.wait_for(unit);
  keep(state.unit(1).weight(0));
  return passed;
}

double apart(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

class OnAGpu : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { DSJ_NEEDS_GPU(); }
  const c10::AutoGradMode no_autograd_{false};
};

TEST_P(OnAGpu, AMicroStepIsTheCpus) {
  for (const auto precision : {dsconfig::Precision::Fp32, dsconfig::Precision::Bf16}) {
    SCOPED_TRACE(dsconfig::name_of(precision));
    const Passed there = pass(GetParam(), *gpu::gpu().place, precision);
    const Passed here = pass(GetParam(), at::kCPU, precision);
    // Sums in another order: in bf16 each result is rounded to 8 bits, some hundred times in a row.
    const double bound = precision == dsconfig::Precision::Fp32 ? 1e-4 : 0x1p-5;
    EXPECT_NEAR(there.loss, here.loss, bound * here.loss);
    ASSERT_EQ(there.tensors.size(), here.tensors.size());
    for (size_t i = 0; i < here.tensors.size(); ++i)
      EXPECT_LT(apart(there.tensors[i], here.tensors[i]), bound) << "result " << i;
  }
}

TEST_P(OnAGpu, GivesTheSameBitsTwice) {
  const Passed first = pass(GetParam(), *gpu::gpu().place, dsconfig::Precision::Bf16);
  const Passed second = pass(GetParam(), *gpu::gpu().place, dsconfig::Precision::Bf16);
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_TRUE(first.tensors[0].equal(second.tensors[0])) << "forward has no atomics";
}

INSTANTIATE_TEST_SUITE_P(Models, OnAGpu,
                         testing::Values("tiny-llama", "tiny-qwen2", "tiny-qwen2-tied",
                                         "tiny-qwen3", "tiny-mistral", "tiny-gpt2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

/// The head's weight gradient, of which each piece of logits is a product: 16-bit products add to one fp32 sum.
TEST(SeveralProducts, SumAsInDouble) {
  DSJ_NEEDS_GPU();
  const c10::AutoGradMode no_autograd(false);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const bool accumulate : {false, true}) {
      at::manual_seed(11);
      const auto there = at::TensorOptions(*gpu::gpu().place).dtype(type);
      const at::Tensor grad = at::randn({24, 40}).to(there);
      at::Tensor want = accumulate ? grad.cpu().to(at::kDouble)
                                   : at::zeros({24, 40}, at::TensorOptions().dtype(at::kDouble));
      gemm::WeightSum sum({grad, accumulate}, type, 3);
      for (int product = 0; product < 3; ++product) {
        const at::Tensor dy = at::randn({16, 24}).to(there), x = at::randn({16, 40}).to(there);
        want.add_(at::mm(dy.cpu().to(at::kDouble).t(), x.cpu().to(at::kDouble)));
        sum.add(dy, x);
      }
      const double bound = type == at::kHalf ? 0x1p-10 : 0x1p-8;  // one rounding
      EXPECT_LT(apart(grad.cpu().to(at::kDouble), want), bound) << type << accumulate;
    }
  }
}

}  // namespace
}  // namespace dsj::models
