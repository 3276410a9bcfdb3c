// How many launches a layer takes on a GPU, forward and backward, counted on the simulated one; and
// that the path computes what the CPU's does. The table is docs/gpu.md's: --gtest_filter=Launches.*
// prints it.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "common/format.h"
#include "engine/comm/single.h"
#include "engine/models/unit/unit.h"
#include "engine/optim/optimizer.h"
#include "engine/weights/weight_source.h"
#include "engine/zero/model_state.h"
#include "test_paths.h"
#include "tests/engine/simulated/device.h"
#include "tests/engine/support/fixtures.h"

namespace dsj::models {
namespace {

using simulated::Work;
using testing_support::fixture;

const std::vector<int64_t> kLengths = {7, 3, 7};

/// A model in bf16 at stage 0 on one rank.
class Model {
 public:
  Model(const std::string& name, at::Device place, dsconfig::OptimizerKind kind)
      : place_(place),
        config_(layout::read_model_config(fixture(name)).value()),
        resolved_(bf16(kind)),
        group_(comm::make_single(place)),
        state(config_, resolved_, place, *group_),
        rows_(kLengths, place),
        ropes_(config_, at::TensorOptions().dtype(at::kBFloat16).device(place)),
        layer_(make_layer(config_)) {
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, fixture(name));
    EXPECT_TRUE(source && state.load(*source));
    for (size_t unit = 0; unit < state.units().size(); ++unit) state.wait_for(int(unit));
  }

  struct Passed {
    at::Tensor y, dx;
    Work forward, backward;
  };
  /// The last layer, forward and backward: the same input and gradient on every device. `few`: it
  /// gives the outputs of three tokens alone.
  Passed pass(bool few = false) {
    at::manual_seed(3);
    const std::vector<int64_t> size = {rows_.tokens(), config_.hidden_size};
    const at::Tensor outputs = at::tensor({1, 8, 11}, at::kLong).to(place_);
    const at::Tensor x = at::randn(size).to(at::kBFloat16).to(place_);
    const at::Tensor dx = at::randn({few ? 3 : size[0], size[1]}).to(at::kBFloat16).to(place_);
    const int unit = static_cast<int>(config_.num_layers);
    const LayerCall call{.layer = unit - 1,
                         .rows = &rows_,
                         .rope = ropes_.of(unit - 1, rows_.positions_end()),
                         .dropout_key = {},
                         .outputs = few ? &outputs : nullptr};
    Passed passed;
    LayerSaved saved;
    simulated::take();
    passed.y = layer_->forward(state.unit(unit), x, call, &saved);
    passed.forward = simulated::take();
    passed.dx = layer_->backward(state.unit(unit), dx, call, std::move(saved));
    passed.backward = simulated::take();
    return passed;
  }

  /// Every gradient is there; then one update.
  struct Updated {
    Work norm, update;
    int64_t flats = 0, parameters = 0;
  };
  Updated update() {
    Updated updated{.flats = static_cast<int64_t>(state.plan().flats.size())};
    for (size_t unit = 0; unit < state.units().size(); ++unit) {
      for (size_t i = 0; i < state.units()[unit].parameters.size(); ++i, ++updated.parameters)
        state.unit(int(unit)).grad(int(i)).tensor.fill_(0.5);
    }
    for (int flat = 0; flat < updated.flats; ++flat) state.reduce(flat, true);
    state.finish_reductions();
    simulated::take();
    state.owned_sum_of_squares();
    updated.norm = simulated::take();
    state.step({.rates = {.lr = 1e-3, .previous_lr = 1e-3}});
    updated.update = simulated::take();
    return updated;
  }

 private:
  static dsconfig::ResolvedConfig bf16(dsconfig::OptimizerKind kind) {
    dsconfig::ResolvedConfig config;
    config.precision = dsconfig::Precision::Bf16;
    config.zero.stage = 0;
    config.optimizer.kind = kind;
    return config;
  }
  const at::Device place_;
  const layout::ModelConfig config_;
  const dsconfig::ResolvedConfig resolved_;
  const std::unique_ptr<comm::Collectives> group_;

 public:
  zero::ModelState state;

 private:
  const RowBounds rows_;
  ops::Ropes ropes_;
  const std::unique_ptr<const Layer> layer_;
};

/// Launches, by who brings them.
std::string cells(const Work& work) {
  return text::format("%ld | %ld | %ld", work.launches(), work.ours, work.libtorchs);
}

std::string what(const Work& work) {
  std::string all;
  for (const auto& [name, count] : work.operations)
    all += name + " x " + std::to_string(count) + "\n";
  return all;
}

constexpr struct {
  const char *model, *shown;
} kModels[] = {{"tiny-llama", "Llama"},
               {"tiny-qwen2", "Qwen 2 (biases)"},
               {"tiny-qwen3", "Qwen 3 (head norms)"},
               {"tiny-gpt2", "GPT-2"}};

TEST(Launches, OfALayerAreFewAndInTheTable) {
  c10::AutoGradMode no_autograd(false);
  std::string table =
      "| layer | forward | ours | libtorch's | backward | ours | libtorch's |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const auto& [name, shown] : kModels) {
    SCOPED_TRACE(name);
    Model model(name, simulated::device(), dsconfig::OptimizerKind::Adam);
    for (const bool few : {false, true}) {
      const auto passed = model.pass(few);
      for (const Work* work : {&passed.forward, &passed.backward}) {
        EXPECT_EQ(work->stops, 0) << "the host waits\n" << what(*work);
        EXPECT_EQ(work->copies, 0) << what(*work);
        EXPECT_EQ(work->uncounted, "") << "how many launches do they take? (device.cc, kLaunches)";
        EXPECT_EQ(work->attention, 1) << what(*work);
      }
      // The last layer picks rows, and puts them back.
      EXPECT_LE(passed.forward.launches(), few ? 22 : 14) << what(passed.forward);
      EXPECT_LE(passed.backward.launches(), few ? 34 : 22) << what(passed.backward);
      table += text::format("| %s%s | %s | %s |\n", shown, few ? ", last layer" : "",
                            cells(passed.forward).c_str(), cells(passed.backward).c_str());
    }
  }
  std::printf("result: launches of a layer, attention's own left out\n%s", table.c_str());
  std::stringstream page;
  page << std::ifstream(DSJ_SOURCE_DIR "/docs/gpu.md").rdbuf();
  EXPECT_NE(page.str().find(table), std::string::npos) << "docs/gpu.md has another table";
}

/// Rounded to bf16 in another order of operations: what is compared is the path.
TEST(Launches, TheLayersAreTheCpus) {
  c10::AutoGradMode no_autograd(false);
  for (const auto& [name, shown] : kModels) {
    SCOPED_TRACE(name);
    const auto there = Model(name, simulated::device(), dsconfig::OptimizerKind::Adam).pass();
    const auto here = Model(name, at::kCPU, dsconfig::OptimizerKind::Adam).pass();
    EXPECT_EQ(here.forward.launches() + here.backward.launches(), 0);
    const auto apart = [](const at::Tensor& a, const at::Tensor& b) {
      const at::Tensor wide = b.to(at::kFloat);
      return ((a.cpu().to(at::kFloat) - wide).norm() / wide.norm()).item<double>();
    };
    EXPECT_LT(apart(there.y, here.y), 0x1p-7);
    EXPECT_LT(apart(there.dx, here.dx), 0x1p-7);
  }
}

/// The parameters of a unit are one launch, whatever their number; LAMB's two passes are four.
TEST(Launches, OfAnUpdateGrowWithUnitsAndNotWithParameters) {
  c10::AutoGradMode no_autograd(false);
  for (const auto kind : {dsconfig::OptimizerKind::Adam, dsconfig::OptimizerKind::Lamb}) {
    Model model("tiny-qwen2", simulated::device(), kind);
    const auto updated = model.update();
    const int64_t per_flat = kind == dsconfig::OptimizerKind::Lamb ? 3 : 1;
    EXPECT_EQ(updated.update.ours, per_flat * updated.flats + (per_flat > 1 ? 1 : 0))
        << updated.parameters << " parameters in " << updated.flats << " flats";
    EXPECT_GT(updated.parameters, 3 * updated.flats);
    EXPECT_LE(updated.update.libtorchs, 1) << what(updated.update);  // LAMB's sums begin at 0
    EXPECT_EQ(updated.norm.ours, 2 * updated.flats);
    EXPECT_LE(updated.norm.libtorchs, 1) << what(updated.norm);
    EXPECT_EQ(updated.update.stops + updated.norm.stops, 0);
    EXPECT_EQ(updated.update.uncounted + updated.norm.uncounted, "");
  }
}

}  // namespace
}  // namespace dsj::models
