// Every schedule over drawn parameters: each rate of the run is a number from 0 on, or the run is
// refused with the key.
#include "job/dsconfig/config/rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "job/dsconfig/read/scheduler_classes.h"
#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}
  int64_t whole(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  /// Often a number at an edge, where formulas divide by 0.
  double number(double least, double most) {
    const std::vector<double> edges = {0, 1, -1, 0.5, 0.1, 0.05, 1e-12, 1e3, least, most};
    if (whole(0, 1) == 0) return edges[static_cast<size_t>(whole(0, std::ssize(edges) - 1))];
    return std::uniform_real_distribution<double>(least, most)(random_);
  }
  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<size_t>(whole(0, std::ssize(all) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

json drawn_value(Draws& draw, const std::string& name) {
  if (name == "milestones") return json::array({draw.whole(-1, 9), draw.whole(0, 30)});
  if (name == "mode") return draw.one_of<std::string>({"triangular", "triangular2", "exp_range"});
  if (name == "anneal_strategy") return draw.one_of<std::string>({"cos", "linear"});
  if (name == "warmup_type") return draw.one_of<std::string>({"log", "linear"});
  for (const char* flag : {"three_phase", "cycle_momentum", "lr_range_test_staircase"})
    if (name == flag) return draw.whole(0, 1) == 1;
  for (const char* steps : {"step", "total", "epoch", "iters", "T_", "stair"})
    if (name.find(steps) != std::string::npos && name.find("rate") == std::string::npos)
      return draw.whole(0, 30);
  return draw.number(-2, 3);
}

/// A job of any schedule, with parameters that its class has.
Resolution drawn(Draws& draw, std::string& shown) {
  TrainingArgs args;
  args.max_steps = draw.whole(1, 40);
  if (draw.whole(0, 1) == 0) args.warmup_steps = draw.whole(0, 45);
  args.learning_rate = draw.one_of<double>({1e-3, 1e-3, 5, 0, 1e-7});
  json config = {{"train_micro_batch_size_per_gpu", 1},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", "auto"}}}}}};
  if (draw.whole(0, 2) > 0) {
    const SchedulerClass* one = nullptr;
    while (one == nullptr) one = scheduler_class(draw.one_of(scheduler_names()));
    json params = json::object();
    for (const std::string& name : one->params)
      if (std::ranges::count(one->required, name) == 1 || draw.whole(0, 2) == 0)
        params[name] = drawn_value(draw, name);
    config["scheduler"] = {{"type", one->name}, {"params", params}};
  } else {
    args.lr_scheduler_type = draw.one_of<std::string>(
        {"constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts",
         "polynomial", "inverse_sqrt", "cosine_with_min_lr", "cosine_warmup_with_min_lr",
         "warmup_stable_decay"});
    json kwargs = json::object();
    const std::string& type = *args.lr_scheduler_type;
    if (type.starts_with("cosine")) kwargs["num_cycles"] = draw.number(-1, 4);
    if (type == "polynomial")
      kwargs = {{"power", draw.number(-2, 3)}, {"lr_end", draw.number(0, 1e-4)}};
    if (type == "inverse_sqrt") kwargs["timescale"] = draw.whole(0, 9);
    if (type.ends_with("with_min_lr")) kwargs["min_lr_rate"] = draw.number(-1, 2);
    if (type == "warmup_stable_decay") kwargs["num_decay_steps"] = draw.whole(0, 30);
    args.lr_scheduler_kwargs = kwargs;
  }
  shown = config.dump() + " " + to_json(args).dump();
  return resolve(config, args, {});
}

TEST(Rates, EveryRateIsANumberOrTheRunIsRefusedWithTheKey) {
  Draws draw(20261125);
  int ran = 0, refused_for_rates = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string shown;
    const Resolution r = drawn(draw, shown);
    SCOPED_TRACE(shown);
    for (const Finding& finding : r.findings) ASSERT_FALSE(finding.path.empty());
    if (!r.ok()) {
      for (const Finding& finding : r.findings)
        if (finding.message.find(" in step ") != std::string::npos) {
          ++refused_for_rates;
          EXPECT_TRUE(finding.path.starts_with("scheduler.") ||
                      finding.path.starts_with("training.lrScheduler"))
              << finding.path;
        }
      continue;
    }
    ASSERT_TRUE(r.complete);
    ++ran;
    for (int64_t done = 0; done < r.config.total_steps; ++done) {
      const Scheduled now = scheduled(r.config.scheduler, r.config.optimizer.lr, done);
      ASSERT_TRUE(std::isfinite(now.lr) && now.lr >= 0) << "step " << done + 1 << ": " << now.lr;
      const double momentum = now.momentum.value_or(0);
      ASSERT_TRUE(std::isfinite(momentum)) << momentum;
    }
    // A checkpoint of the last step notes the rate of one more.
    const double next =
        scheduled(r.config.scheduler, r.config.optimizer.lr, r.config.total_steps).lr;
    ASSERT_TRUE(std::isfinite(next)) << next;
  }
  EXPECT_GT(ran, 2000);
  EXPECT_GT(refused_for_rates, 200);
}

Resolution with(const std::string& type, const json& params, int64_t steps) {
  TrainingArgs args;
  args.max_steps = steps;
  args.learning_rate = 1e-3;
  return resolve({{"train_micro_batch_size_per_gpu", 1},
                  {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", "auto"}}}}},
                  {"scheduler", {{"type", type}, {"params", params}}}},
                 args, {});
}

TEST(Rates, ARiseOfNoStepIsRefusedAtPctStart) {
  const json params = {{"max_lr", 1e-3}, {"total_steps", 10}, {"pct_start", 0.1}};
  const Resolution r = with("OneCycleLR", params, 10);
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_EQ(r.findings[0].path, "scheduler.params.pct_start");
  EXPECT_EQ(r.findings[0].message, "OneCycleLR: the rate is nan in step 1 of 10");
  // Below one step torch begins on the way down, and so does this.
  EXPECT_TRUE(with("OneCycleLR", {{"max_lr", 1e-3}, {"total_steps", 10}, {"pct_start", 0.05}}, 10)
                  .runnable());
}

TEST(Rates, ARateBeyondFp32IsRefused) {
  TrainingArgs args;
  args.max_steps = 10;
  args.learning_rate = 1e300;
  const Resolution r = resolve({{"train_micro_batch_size_per_gpu", 1}}, args, {});
  EXPECT_FALSE(r.runnable());
  ASSERT_EQ(r.findings.size(), 1u);
  EXPECT_NE(r.findings[0].message.find("more than updates in fp32 can take, in step 1 of 10"),
            std::string::npos)
      << r.findings[0].message;
}

TEST(Rates, AWarmUpOfTheWholeRunLeavesNothingToDecay) {
  TrainingArgs args;
  args.max_steps = args.warmup_steps.emplace(6);
  args.lr_scheduler_type.emplace("polynomial");
  args.learning_rate = 6e-3;
  const Resolution r = resolve({{"train_micro_batch_size_per_gpu", 1}}, args, {});
  ASSERT_TRUE(r.runnable());
  EXPECT_DOUBLE_EQ(scheduled(r.config.scheduler, 6e-3, 5).lr, 5e-3);
  EXPECT_DOUBLE_EQ(scheduled(r.config.scheduler, 6e-3, 6).lr, 1e-7);
}

TEST(Rates, ALongRunIsLookedAtAtItsEndsAndBetween) {
  SchedulerConfig config{.type = "ExponentialLR"};
  config.torch.gamma = 1;
  EXPECT_FALSE(first_bad_rate(config, 1e-3, int64_t{1} << 40));
  config.type = "linear";
  config.total_steps = int64_t{1} << 40;
  EXPECT_FALSE(first_bad_rate(config, 1e-3, int64_t{1} << 40));
  config.torch.gamma = -1;
  config.type = "ExponentialLR";
  EXPECT_EQ(first_bad_rate(config, 1e-3, int64_t{1} << 40)->step, 2);
}

/// As Trainer's trainer_config_finalize, whatever decides the length of the run.
TEST(Rates, ALengthThatIsNotTheRunsIsAMismatch) {
  for (const char* type : {"WarmupDecayLR", "WarmupCosineLR"}) {
    TrainingArgs args;
    args.num_train_epochs = 2;
    args.per_device_train_batch_size = 1;
    const auto resolved = [&](int64_t total) {
      return resolve(
          {{"train_micro_batch_size_per_gpu", "auto"},
           {"scheduler",
            {{"type", type}, {"params", {{"warmup_num_steps", 2}, {"total_num_steps", total}}}}}},
          args, {.dataset_rows = 8});
    };
    EXPECT_TRUE(resolved(16).runnable()) << type;
    const Resolution r = resolved(5);
    ASSERT_EQ(r.findings.size(), 1u) << type;
    EXPECT_EQ(r.findings[0].path, "scheduler.params.total_num_steps");
    EXPECT_THAT(r.findings[0].message, HasSubstr("ds_config says 5"));
    EXPECT_THAT(r.findings[0].message, HasSubstr("16"));
    EXPECT_FALSE(r.ok());
  }
}

TEST(Rates, ACycleThatTheRunCutsShortIsSaid) {
  const auto warned = [](const Resolution& r, const std::string& path) {
    EXPECT_TRUE(r.runnable());
    return std::ranges::any_of(r.findings, [&](const Finding& finding) {
      return finding.path == path && finding.message.find("cycle") != std::string::npos;
    });
  };
  const json cycle = {{"cycle_min_lr", 1e-4}, {"cycle_max_lr", 1e-3}, {"cycle_first_step_size", 9}};
  EXPECT_TRUE(warned(with("OneCycle", cycle, 10), "scheduler.params.cycle_first_step_size"));
  EXPECT_FALSE(warned(with("OneCycle", cycle, 18), "scheduler.params.cycle_first_step_size"));
  const json torch = {{"max_lr", 1e-3}, {"total_steps", 100}};
  EXPECT_TRUE(warned(with("OneCycleLR", torch, 10), "scheduler.params.total_steps"));
  EXPECT_FALSE(warned(with("OneCycleLR", torch, 100), "scheduler.params.total_steps"));
}

TEST(Rates, RowsBeyondTheModelsPositionsAreSaid) {
  TrainingArgs args;
  args.max_steps = 1;
  args.max_seq_length = 512;
  Facts facts{.positions = 64};
  const auto message = [&] {
    const Resolution r = resolve({{"train_micro_batch_size_per_gpu", 1}}, args, facts);
    EXPECT_TRUE(r.runnable());
    for (const Finding& finding : r.findings)
      if (finding.path == "training.maxSeqLength") return finding.message;
    return std::string();
  };
  EXPECT_THAT(message(), HasSubstr("trained on there all the same"));
  facts.positions_learned = true;
  EXPECT_THAT(message(), HasSubstr("longer rows are cut there"));
  args.max_seq_length = 64;
  EXPECT_EQ(message(), "");
}

}  // namespace
}  // namespace dsj::dsconfig
