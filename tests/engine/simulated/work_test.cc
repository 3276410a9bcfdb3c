// What job/roofline counts for `dsj plan --device` is what the engine queues on the simulated GPU:
// launches, bytes and operations of every unit, of the gradient norm and of the update, exactly.
#include "job/roofline/work.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/comm/single.h"
#include "engine/models/ops/gemm.h"
#include "engine/models/unit/unit.h"
#include "engine/optim/optimizer.h"
#include "engine/weights/weight_source.h"
#include "engine/zero/flat/piece_sums.h"
#include "engine/zero/model_state.h"
#include "job/layout/lora.h"
#include "job/plan/zero_plan.h"
#include "job/roofline/roofline.h"
#include "job/roofline/state_work.h"
#include "job/roofline/unit_work.h"
#include "tests/engine/simulated/device.h"
#include "tests/engine/support/fixtures.h"

namespace dsj::models {
namespace {

using roofline::Kind;
using roofline::Ops;
using simulated::Work;
using testing_support::fixture;

struct TwinCase {
  const char* model;
  int every = 1;  ///< one token in so many has a target
  bool lora = false;
  bool wide_sums = false;  ///< gradients are summed in fp32, in a copy
};

std::optional<LoraArgs> lora_of(const layout::ModelConfig& model, const TwinCase& of) {
  if (!of.lora) return std::nullopt;
  return layout::resolve_lora(model, {.r = 4, .target_pattern = "all-linear"}).value();
}

/// One rank of a model in bf16 on the simulated GPU, and the same as numbers.
class Twin {
 public:
  Twin(const TwinCase& of, const std::vector<int64_t>& lengths)
      : model_(layout::read_model_config(fixture(of.model)).value()),
        config_(config_of(of)),
        lora_(lora_of(model_, of)),
        group_(comm::make_single(place_)),
        state_(model_, config_, place_, *group_, lora_),
        batch_(micro_batch(lengths, of.every)),
        ropes_(model_, at::TensorOptions().dtype(at::kBFloat16).device(place_)),
        layer_(make_layer(model_)),
        units_(layout::units_of(model_, lora_)),
        plan_(plan::plan_flats(units_, config_, 1)),
        work_(model_, units_, plan_, lora_),
        counted_{lengths, batch_.targets().count} {
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, fixture(of.model));
    EXPECT_TRUE(source && state_.load(*source));
    for (size_t unit = 0; unit < units_.size(); ++unit) state_.wait_for(int(unit));
    for (size_t unit = 1; unit + 1 < units_.size(); ++unit) call(int(unit));  // makes rope tables
  }

  /// A micro-step, unit by unit; every gradient is written. The backward of the first runs on what
  /// forward kept, that of others on what was computed again.
  void micro_step(bool first) {
    const int head = static_cast<int>(units_.size()) - 1, layers = head - 1;
    const int lowest = layout::lowest_trainable(units_);
    simulated::take();
    const EmbeddingCall embedding{.rows = &batch_.rows(), .dropout_key = {}};
    at::Tensor x = embedding_forward(state_.unit(0), model_, batch_.input_ids(), embedding);
    compare("embedding forward", work_.forward(0, counted_));
    std::vector<LayerSaved> saved(units_.size());
    for (int unit = 1; unit <= layers; ++unit) {
      const at::Tensor in = x;
      x = layer_->forward(state_.unit(unit), in, call(unit), &saved[unit]);
      compare("forward of layer " + std::to_string(unit), work_.forward(unit, counted_));
      LayerSaved again = layer_->recompute(state_.unit(unit), in, call(unit));
      compare("recompute of layer " + std::to_string(unit), work_.recompute(unit, counted_));
      if (!first) saved[unit] = std::move(again);
    }
    HeadResult turned = head_turn(state_.unit(head), model_, x, batch_, 1.0);
    compare("head", work_.turn(counted_));
    at::Tensor dx = std::move(turned.dx);
    for (int unit = layers; unit >= std::max(1, lowest); --unit) {
      dx = layer_->backward(state_.unit(unit), dx, call(unit), std::move(saved[unit]));
      compare("backward of layer " + std::to_string(unit),
              work_.backward(unit, counted_, /*recomputed=*/!first));
    }
    if (lowest == 0) {
      embedding_backward(state_.unit(0), model_, batch_.input_ids(), dx, embedding);
      compare("embedding backward", work_.backward(0, counted_));
    }
    Ops reductions;
    for (int flat = 0; flat < static_cast<int>(plan_.flats.size()); ++flat) {
      if (plan_.flats[flat].frozen()) continue;
      state_.reduce(flat, !first);
      const auto all = roofline::reduction(flat_state(flat), first, !first);
      reductions.insert(reductions.end(), all.before.begin(), all.before.end());
      EXPECT_TRUE(all.sent == 0 && all.after.empty()) << "one rank";
      if (all.gone) work_.forget(flat);
    }
    compare("reductions", reductions);
  }

  void update() {
    state_.finish_reductions();
    simulated::take();
    state_.owned_sum_of_squares();
    Ops norm = {{Kind::Pass, 0, 8, 1}}, updates;  // the sum begins at 0
    for (int flat = 0; flat < static_cast<int>(plan_.flats.size()); ++flat) {
      if (plan_.flats[flat].frozen()) continue;
      const auto squares = roofline::norm_work(flat_state(flat));
      norm.insert(norm.end(), squares.begin(), squares.end());
      const auto offload = plan::plan_offload(plan_, config_, 1);
      const auto all = roofline::update_work(flat_state(flat), offload.optimizer[flat],
                                             offload.parameters[flat]);
      updates.insert(updates.end(), all.device.begin(), all.device.end());
      EXPECT_EQ(all.up + all.host, 0);
    }
    compare("norm", norm);
    state_.step({.rates = {.lr = 1e-3, .previous_lr = 1e-3}});
    compare("update", updates);
  }

  const MicroBatch& batch() const { return batch_; }

 private:
  static dsconfig::ResolvedConfig config_of(const TwinCase& of) {
    dsconfig::ResolvedConfig config;
    config.precision = config.communication_dtype = dsconfig::Precision::Bf16;
    config.grad_accum_dtype = of.wide_sums ? dsconfig::Precision::Fp32 : dsconfig::Precision::Bf16;
    config.zero.stage = 0;
    config.zero.reduce_bucket_size = 1000;  // several pieces of a flat
    return config;
  }
  MicroBatch micro_batch(const std::vector<int64_t>& lengths, int every) const {
    const RowBounds rows(lengths, place_);
    at::manual_seed(1);
    const at::Tensor ids = at::randint(0, model_.vocab_size, {rows.tokens()}, at::kLong);
    at::Tensor labels = ids.clone();
    auto* const label = labels.data_ptr<int64_t>();
    for (int64_t i = 0; i < rows.tokens(); ++i)
      if (i % every != 0) label[i] = -100;
    return {ids.to(place_), labels, rows};
  }
  LayerCall call(int unit) {
    return {.layer = unit - 1,
            .rows = &batch_.rows(),
            .rope = ropes_.of(unit - 1, batch_.rows().positions_end()),
            .dropout_key = {},
            .outputs = unit == model_.num_layers ? batch_.last_outputs() : nullptr};
  }
  roofline::FlatState flat_state(int flat) const {
    return {plan_.flats[flat], layout::kStages[0], config_, 1, 2};
  }

  static void compare(const std::string& what, const Ops& ops) {
    SCOPED_TRACE(what);
    const Work queued = simulated::take();
    Work counted;
    for (const roofline::Op& op : ops) {
      (op.kind == Kind::Ours        ? counted.ours
       : op.kind == Kind::Attention ? counted.attention
                                    : counted.libtorchs) += op.launches;
      (op.kind == Kind::Attention ? counted.attention_flops : counted.product_flops) += op.flops;
      counted.bytes += op.bytes;
    }
    EXPECT_EQ(queued.uncounted, "");
    EXPECT_EQ(queued.stops, 0);
    std::string all;
    for (const auto& [name, count] : queued.operations)
      all += name + " x " + std::to_string(count) + "\n";
    EXPECT_EQ(counted.ours, queued.ours);
    EXPECT_EQ(counted.libtorchs, queued.libtorchs) << all;
    EXPECT_EQ(counted.attention, queued.attention);
    EXPECT_EQ(counted.bytes, queued.bytes) << all;
    EXPECT_EQ(counted.product_flops, queued.product_flops);
    EXPECT_EQ(counted.attention_flops, queued.attention_flops);
  }

  const at::Device place_ = simulated::device();
  const layout::ModelConfig model_;
  const dsconfig::ResolvedConfig config_;
  const std::optional<LoraArgs> lora_;
  const std::unique_ptr<comm::Collectives> group_;
  zero::ModelState state_;
  const MicroBatch batch_;
  ops::Ropes ropes_;
  const std::unique_ptr<const Layer> layer_;
  const std::vector<layout::UnitSpec> units_;
  const layout::FlatPlan plan_;
  roofline::UnitWork work_;
  const roofline::Batch counted_;  ///< the head's pieces are always two or more
};

TEST(Counted, WorkIsWhatIsQueued) {
  c10::AutoGradMode no_autograd(false);
  const TwinCase cases[] = {{"tiny-qwen2", 2, false, true},
                            {"tiny-qwen2", 2, true},
                            {"tiny-qwen2-tied", 2},
                            {"tiny-qwen3", 1, true, true},
                            {"tiny-mistral", 2},
                            {"tiny-gpt2"},
                            {"tiny-gpt2", 2}};
  int few = 0;
  for (const TwinCase& one : cases) {
    SCOPED_TRACE(std::string(one.model) + ", every " + std::to_string(one.every) +
                 (one.lora ? ", LoRA" : "") + (one.wide_sums ? ", sums in fp32" : ""));
    Twin twin(one, one.every > 1 ? std::vector<int64_t>{3, 2, 4} : std::vector<int64_t>{17});
    few += twin.batch().last_outputs() != nullptr;
    twin.micro_step(true);
    twin.micro_step(false);  // gradients are added to those that are there
    twin.update();
  }
  EXPECT_EQ(few, 5) << "the last layer with the targets' outputs alone";
}

/// Every family that can be counted is: each fixture is one, and a new one is tested by being there.
TEST(Counted, WorkOfEveryFamilyIsWhatIsQueued) {
  c10::AutoGradMode no_autograd(false);
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixture(""))) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("tiny-") || !entry.is_directory()) continue;
    SCOPED_TRACE(name);
    plan::MemoryInput input{.model = layout::read_model_config(entry.path().string()).value(),
                            .config = {},
                            .world = 1};
    input.config.precision = dsconfig::Precision::Bf16;
    input.model.dropout = {};
    if (roofline::uncounted(input)) continue;
    ++families;
    for (const int every : {1, 2}) {
      const TwinCase of{name.c_str(), every};
      Twin twin(of, every > 1 ? std::vector<int64_t>{3, 2, 4} : std::vector<int64_t>{5});
      twin.micro_step(true);
      twin.micro_step(false);
      twin.update();
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GE(families, 53) << "as many as were counted before";
}

/// A CPU sums a weight's gradient by tiles that fit a core's cache, with operations of their own. On a GPU the
/// product adds to the sum itself.
TEST(Counted, TheSumOfAWeightsGradientTakesFewLaunchesOnAGpu) {
  c10::AutoGradMode no_autograd(false);
  const auto there = at::TensorOptions().dtype(at::kBFloat16).device(simulated::device());
  const at::Tensor grad = at::empty({8192, 128}, there), dy = at::empty({2, 8192}, there).zero_(),
                   x = at::empty({2, 128}, there).zero_();
  gemm::WeightSum sum({grad, false}, at::kBFloat16, 2);
  simulated::take();
  sum.add(dy, x);
  EXPECT_EQ(simulated::take().launches(), 1);
  sum.add(dy, x);
  EXPECT_EQ(simulated::take().launches(), 2) << "the last is rounded";

  zero::PieceSums pieces;
  pieces.of(0, 1, {grad, false}, at::kBFloat16).tensor.zero_();
  simulated::take();
  pieces.add();
  EXPECT_EQ(simulated::take().launches(), 5) << "and so where a unit adds up pieces";
}

}  // namespace
}  // namespace dsj::models
