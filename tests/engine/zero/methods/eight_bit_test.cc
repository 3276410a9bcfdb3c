// AdamW with moments in 8 bits: bitsandbytes' recorded steps (tests/oracle/eight_bit_oracle.py); stages, world sizes and
// resumes, whose states are equal to the bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "engine/zero/methods/methods.h"
#include "engine/zero/model_state.h"
#include "job/plan/eight_bit_plan.h"
#include "job/plan/zero_plan.h"
#include "test_paths.h"
#include "tests/engine/support/ranks.h"
#include "tests/engine/zero/one_bit_steps.h"

namespace dsj::zero {
namespace {

using testing_support::drawn;
using testing_support::run_ranks;

/// made() of the oracle.
at::Tensor made_numbers(uint64_t seed, int64_t count) {
  constexpr double kDecades[] = {1.0, 0.1, 0.01, 0.001};
  uint64_t x = 88172645463325252u + seed * 2654435761u;
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    const double whole = static_cast<double>(static_cast<int64_t>(x % 2001) - 1000);
    out.push_back(static_cast<float>(whole / 1000 * kDecades[(x >> 20) % 4]));
  }
  return at::tensor(out);
}

/// Every piece of a checkpoint, by state and parameter.
using Pieces = std::map<std::pair<std::string, std::string>, std::vector<float>>;

/// A checkpoint in memory.
class KeptRun final : public checkpoint::SavedRun {
 public:
  explicit KeptRun(const Pieces& pieces, int64_t updates)
      : pieces_(pieces), state_({{"updates", updates}}) {}
  const std::string& path() const override { return path_; }
  int64_t step() const override { return state_["updates"]; }
  const nlohmann::json& run_state() const override { return state_; }
  std::optional<int64_t> elements(const std::string& state,
                                  const std::string& param) const override {
    const auto found = pieces_.find({state, param});
    if (found == pieces_.end()) return std::nullopt;
    return static_cast<int64_t>(found->second.size());
  }
  Status read(const std::string& state, const std::string& param, int64_t offset,
              std::span<float> out) override {
    const auto& all = pieces_.at({state, param});
    EXPECT_LE(static_cast<size_t>(offset) + out.size(), all.size());
    std::copy_n(all.begin() + offset, out.size(), out.begin());
    return {};
  }

 private:
  const Pieces& pieces_;
  const nlohmann::json state_;
  const std::string path_ = "kept";
};

/// Of all ranks together: whole, without overlap. Collective by its callers.
void collect(ModelState& state, std::mutex& mutex, Pieces& into) {
  const std::lock_guard lock(mutex);
  for (const auto& extent : state.extents()) {
    auto& whole = into[{extent.state, extent.param}];
    if (whole.empty()) whole.assign(static_cast<size_t>(extent.elements), NAN);
  }
  EXPECT_TRUE(state.for_pieces([&](const checkpoint::Piece& piece) -> Status {
    auto& whole = into.at({piece.state, piece.param});
    EXPECT_LE(static_cast<size_t>(piece.offset) + piece.data.size(), whole.size());
    for (size_t i = 0; i < piece.data.size(); ++i) {
      float& to = whole[static_cast<size_t>(piece.offset) + i];
      EXPECT_TRUE(std::isnan(to)) << piece.state << " of " << piece.param << ": saved twice";
      to = piece.data[i];
    }
    return {};
  }));
}

/// Its matrices have from 2,048 to 7,000 elements; not all sizes are multiples of a block.
layout::ModelConfig mixed_model() {
  return {.model_type = "qwen2",
          .vocab_size = 100,
          .hidden_size = 64,
          .intermediate_size = 70,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .max_position = 16};
}

struct EightBitRun {
  int stage = 0, world = 1;
  dsconfig::Precision precision = dsconfig::Precision::Fp32;
  int64_t bucket = 500'000'000;
};

/// Steps [first, last) with gradients that only rank 0 has, so that their sum is the same at any world
/// size. `from`: a checkpoint.
Pieces after_steps(const EightBitRun& run, int64_t first, int64_t last,
                   const Pieces* from = nullptr) {
  dsconfig::ResolvedConfig config;
  config.precision = config.communication_dtype = config.grad_accum_dtype = run.precision;
  config.zero.stage = run.stage;
  config.zero.reduce_bucket_size = run.bucket;
  config.zero.param_persistence_threshold = 64;
  config.averaging.mean = false;
  config.optimizer.eight_bit = true;
  config.optimizer.beta2 = 0.95;
  config.optimizer.weight_decay = 0.1;
  config.optimizer.decays_all = false;
  Pieces all;
  std::mutex mutex;
  run_ranks(run.world, [&](comm::Collectives& group, memory::Ledger&) {
    ModelState state(mixed_model(), config, at::kCPU, group);
    Pieces start;
    if (from == nullptr) {  // masters alone: nothing was updated
      uint32_t seed = 400;
      for (const auto& unit : state.units())
        for (const auto& parameter : unit.parameters) {
          const at::Tensor value = drawn(seed++, parameter.numel());
          const float* data = value.const_data_ptr<float>();
          start[{"master", parameter.name}].assign(data, data + value.numel());
        }
    }
    KeptRun saved(from ? *from : start, first);
    const Status restored = state.restore(saved);
    ASSERT_TRUE(restored) << restored.error().to_string();
    for (int64_t step = first; step < last; ++step) {
      for (size_t unit = 0; unit < state.units().size(); ++unit)
        state.wait_for(static_cast<int>(unit));
      for (int f = 0; f < static_cast<int>(state.plan().flats.size()); ++f) {
        const auto& slots = state.plan().flats[f].slots();
        for (int s = 0; s < static_cast<int>(slots.size()); ++s) {
          const auto seed = static_cast<uint32_t>(std::hash<std::string>{}(slots[s].name) + step);
          const at::Tensor grad = state.flat(f).grad(s).tensor.view(-1);
          grad.copy_(group.rank() == 0 ? drawn(seed, slots[s].numel) : at::zeros({slots[s].numel}));
        }
        state.reduce(f, true);
      }
      state.finish_reductions();
      state.step({.rates = {.lr = testing_support::rate(step)}, .updates = step});
      state.clear_grad();
    }
    for (size_t unit = 0; unit < state.units().size(); ++unit)
      state.wait_for(static_cast<int>(unit));
    collect(state, mutex, all);
  });
  return all;
}

/// The same numbers in every state of every parameter.
void expect_same_pieces(const Pieces& got, const Pieces& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [key, values] : want) {
    const auto found = got.find(key);
    ASSERT_NE(found, got.end()) << what << ": " << key.first << " of " << key.second;
    ASSERT_EQ(found->second.size(), values.size());
    size_t at = 0;
    while (at < values.size() && found->second[at] == values[at]) ++at;
    EXPECT_EQ(at, values.size()) << what << ": " << key.first << " of " << key.second << ": "
                                 << found->second[at] << ", expected " << values[at];
  }
}

TEST(EightBit, FollowsBitsandbytesOver50Steps) {
  std::ifstream file(DSJ_SOURCE_DIR "/tests/fixtures/eight-bit/record.json");
  const auto record = nlohmann::json::parse(file)["adamw"];
  const int64_t numel = record["numbers"], every = record["every"];
  run_ranks(1, [&](comm::Collectives& group, memory::Ledger&) {
    dsconfig::ResolvedConfig config;
    config.optimizer.eight_bit = true;
    config.optimizer.beta2 = 0.95;
    config.optimizer.weight_decay = 0.1;
    const std::vector<layout::UnitSpec> units = {{"unit", {{"w", {numel}}}}};
    const auto plan = plan::plan_flats(units, config, 1);
    Flat flat(plan.flats[0], {.stage = layout::kStages[0]}, group);
    const auto method = make_update_method({.config = config,
                                            .units = units,
                                            .plan = plan,
                                            .flats = {&flat},
                                            .collectives = group,
                                            .device = at::kCPU});
    const at::Tensor start = made_numbers(0, numel);
    ASSERT_TRUE(flat.load_state(false, [&](int, const Flat::HostRange& range) -> Status {
      std::copy_n(start.const_data_ptr<float>() + range.offset, range.data.size(),
                  range.data.begin());
      return {};
    }));
    flat.publish();
    double most = 0;
    for (int64_t step = 0; step < 50; ++step) {
      flat.grad(0).tensor.copy_(made_numbers(static_cast<uint64_t>(step) + 1, numel));
      flat.gradient().reduce(true);
      flat.gradient().finish_reduce();
      const double lr = 0.001 * static_cast<double>(4 + 7 * step % 10);
      method->step({.rates = {.lr = lr}, .updates = step});
      flat.finish_gather();
      flat.gradient().clear();
      const auto kept = record["after"].find(std::to_string(step + 1));
      if (kept == record["after"].end()) continue;
      const at::Tensor ours = flat.weight(0).view(-1);
      for (size_t i = 0; i < kept->size(); ++i)
        most = std::max(most, std::abs(ours[static_cast<int64_t>(i) * every].item<double>() -
                                       (*kept)[i].get<double>()));
    }
    // Where rounding decides a code, a moment is one code apart. Measured: 6e-7, one code of 10,000.
    EXPECT_LT(most, 1e-4) << "of weights that have moved by up to 0.4";
    Pieces pieces;
    ASSERT_TRUE(method->for_pieces([&](const checkpoint::Piece& piece) -> Status {
      auto& values = pieces[{piece.state, piece.param}];
      values.insert(values.end(), piece.data.begin(), piece.data.end());
      return {};
    }));
    int64_t compared = 0, apart = 0;
    const char* const states[] = {"exp_avg", "exp_avg_sq"};
    std::ifstream again(DSJ_SOURCE_DIR "/tests/fixtures/eight-bit/record.json");
    const auto maps = nlohmann::json::parse(again)["maps"];
    for (size_t m = 0; m < 2; ++m) {
      const auto& values = pieces.at({states[m], "w"});
      const auto& scales = pieces.at({std::string(states[m]) + "_absmax", "w"});
      const auto& map = maps[m == 0 ? "signed" : "unsigned"];
      ASSERT_EQ(values.size(), static_cast<size_t>(numel));
      ASSERT_EQ(scales.size(), record["scales"][m].size());
      for (size_t i = 0; i < values.size(); ++i) {
        const double scale = record["scales"][m][i / 256];
        EXPECT_NEAR(scales[i / 256], scale, 1e-6 * scale);
        const double theirs = map[record["codes"][m][i].get<size_t>()].get<double>() * scale;
        ++compared;
        if (std::abs(values[i] - theirs) > 1e-5 * scale * (1e-2 + std::abs(theirs / scale)))
          ++apart;
      }
    }
    std::cout << "eight bits: weights " << most << ", codes " << apart << " of " << compared
              << " apart" << std::endl;
    EXPECT_LT(apart, compared / 1000);
  });
}

TEST(EightBit, StatesAreTheSameAtEveryStageAndWorld) {
  using dsconfig::Precision;
  for (const auto precision : {Precision::Fp32, Precision::Bf16}) {
    const Pieces alone = after_steps({.precision = precision}, 0, 6);
    int64_t packed = 0;
    for (const auto& [key, values] : alone) packed += key.first == "exp_avg_absmax";
    EXPECT_EQ(packed, 2 * 5 + 1) << "q, o and the MLP's three of two layers, and the head";
    for (const int world : {1, 2, 3, 4}) {
      for (const int stage : {0, 1, 2, 3}) {
        if (world == 3 && precision == Precision::Bf16) continue;
        const auto run =
            EightBitRun{.stage = stage, .world = world, .precision = precision, .bucket = 9000};
        expect_same_pieces(after_steps(run, 0, 6), alone,
                           "stage " + std::to_string(stage) + " world " + std::to_string(world));
      }
    }
  }
}

TEST(EightBit, AResumeHasTheSameCodesAtEveryStageAndWorld) {
  const Pieces whole = after_steps({}, 0, 8), half = after_steps({.stage = 2, .world = 2}, 0, 4);
  for (const auto& [stage, world] :
       {std::pair{0, 1}, std::pair{1, 2}, std::pair{3, 4}, std::pair{2, 3}, std::pair{0, 2}}) {
    const EightBitRun run{.stage = stage, .world = world, .bucket = 9000};
    expect_same_pieces(after_steps(run, 4, 4, &half), half, "restored and saved");
    expect_same_pieces(after_steps(run, 4, 8, &half), whole,
                       "stage " + std::to_string(stage) + " world " + std::to_string(world));
  }
}

TEST(EightBit, TakesAdamWsMomentsAndNamesWhatIsMissing) {
  Pieces plain = after_steps({}, 0, 4);
  Pieces scaled = plain;
  std::erase_if(plain, [](const auto& one) { return one.first.first.ends_with("_absmax"); });
  const Pieces resumed = after_steps({}, 4, 4, &plain);
  for (const auto& [key, values] : resumed) {
    if (key.first != "exp_avg") continue;
    const auto& before = scaled.at(key);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], before[i], 0.02 * std::abs(before[i]) + 1e-5) << key.second;
  }
  std::erase_if(plain, [](const auto& one) { return one.first.first == "exp_avg_sq"; });
  run_ranks(1, [&](comm::Collectives& group, memory::Ledger&) {
    dsconfig::ResolvedConfig config;
    config.optimizer.eight_bit = true;
    ModelState state(mixed_model(), config, at::kCPU, group);
    KeptRun saved(plain, 4);
    const Status restored = state.restore(saved);
    ASSERT_FALSE(restored);
    EXPECT_NE(restored.error().to_string().find("exp_avg_sq"), std::string::npos);
  });
}

}  // namespace
}  // namespace dsj::zero
