// Steps and evaluations of objectives that judge whole answers, against TRL's trainers
// (tests/fixtures/preference), at each stage and on one rank and two.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/data/batches/sampler.h"
#include "engine/data/dataset.h"
#include "engine/train/step/evaluate_answers.h"
#include "engine/train/step/micro_batch.h"
#include "engine/train/step/references.h"
#include "job/dsconfig/config/loss_normalization.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using nlohmann::json;

constexpr int64_t kTrained = 12;  ///< rows; the others are evaluated
constexpr int64_t kSteps = 20;

class Preference : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = data::Tokenizer::load(fixture("preference"));
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    tokenizer_ = std::move(*loaded);
    oracle_ = json::parse(std::ifstream(fixture("preference") + "/steps.json"));
    const json kto = json::parse(std::ifstream(fixture("preference") + "/kto.json"));
    for (json one : kto["cases"]) {
      one["objective"] = "kto";
      oracle_["cases"].push_back(std::move(one));
    }
    const json reward = json::parse(std::ifstream(fixture("preference") + "/reward.json"));
    for (const json& one : reward["cases"]) oracle_["cases"].push_back(one);
  }

  static TrainingArgs arguments(const json& one) {
    TrainingArgs args;
    args.objective = one["objective"].get<std::string>();
    const json& options = one["options"];
    if (options.contains("beta")) args.beta = options["beta"].get<double>();
    if (options.contains("center_rewards_coefficient"))
      args.center_rewards_coefficient = options["center_rewards_coefficient"].get<double>();
    if (const json loss = options.value("loss_type", json()); !loss.is_null())
      args.loss_type = (loss.is_array() ? loss[0] : loss).get<std::string>();
    if (options.contains("loss_weights")) args.rpo_alpha = options["loss_weights"][1].get<double>();
    if (options.contains("desirable_weight")) args.desirable_weight = options["desirable_weight"];
    if (options.contains("undesirable_weight"))
      args.undesirable_weight = options["undesirable_weight"];
    if (options.contains("label_smoothing"))
      args.label_smoothing = options["label_smoothing"].get<double>();
    return args;
  }

  /// The rows to train on and those to evaluate on.
  struct Rows {
    std::unique_ptr<data::Dataset> train, eval;
    int64_t trained = kTrained;   ///< of `train`, from the first on
    int64_t first_evaluated = 0;  ///< of `eval`
  };
  Rows open(const json& one, const TrainingArgs& args) {
    const data::DatasetOptions options{.aim = data::aim_of(*args.objective),
                                       .prompt_learned = args.objective == "orpo",
                                       .scored = args.objective == "reward",
                                       .threads = 2,
                                       .max_seq_length = one["max_length"],
                                       .vocab_size = 128,
                                       .selection = {.max_samples = one.value("trained", 0)}};
    const auto rows_of = [&](const std::string& name) {
      auto opened = data::Dataset::open(fixture("preference") + "/" + name + ".jsonl",
                                        tokenizer_.get(), options);
      EXPECT_TRUE(opened) << opened.error().to_string();
      return std::move(*opened);
    };
    const auto name = one["rows"].get<std::string>();
    if (args.objective == "reward") {  // longer pairs are left out of each part
      Rows rows{rows_of(name), rows_of(name)};
      const auto left = one["tokens"].size();
      rows.trained = rows.first_evaluated = std::ssize(one["tokens"]);
      EXPECT_EQ(rows.eval->rows(), rows.trained + one["evaluated"].get<int64_t>());
      for (size_t row = 0; row < left; ++row) expect_tokens(*rows.train, row, one["tokens"][row]);
      return rows;
    }
    if (args.objective != "kto")
      return {.train = rows_of(name), .eval = rows_of(name), .first_evaluated = kTrained};
    Rows rows{rows_of("kto_" + name + "_train"), rows_of("kto_" + name + "_eval")};
    rows.trained = rows.train->rows();
    if (dsconfig::objective_of(args).estimates_kl()) {
      rows.train->rotate_answers(2, 0);
      rows.eval->rotate_answers(2, 0);
    }
    return rows;
  }

  static void expect_tokens(const data::Dataset& dataset, size_t row, const json& theirs) {
    const data::Sample sample = dataset.at(static_cast<int64_t>(row)).value();
    const auto second = sample.input_ids.begin() + sample.second;
    EXPECT_EQ(std::vector(sample.input_ids.begin(), second),
              theirs["chosen_ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(std::vector(second, sample.input_ids.end()),
              theirs["rejected_ids"].get<std::vector<int32_t>>());
  }

  struct Seen {
    std::vector<StepResult> steps;
    std::map<int64_t, EvalResult> evals;
  };
  Seen run(const json& one, int world, int stage, bool recompute = false) {
    const TrainingArgs args = arguments(one);
    SmallRun small{.model = args.objective == "reward" ? "preference/reward" : "tiny-llama",
                   .world = world,
                   .recompute = recompute,
                   .config = small_config(stage, 2, 2 / world),
                   .normalization = dsconfig::loss_normalization(args),
                   .objective = dsconfig::objective_of(args)};
    small.config.optimizer.lr = oracle_["learning_rate"];
    small.config.optimizer.beta2 = 0.999;
    small.config.optimizer.weight_decay = 0;
    small.config.gradient_clipping = 0;
    const Rows opened = open(one, args);
    Seen seen;
    testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
      Rank rank(small, collectives);
      rank.load(small.model);
      std::optional<ReferenceLogps> train, eval;
      if (small.objective.has_reference()) {
        for (auto [to, rows] :
             {std::pair(&train, opened.train.get()), std::pair(&eval, opened.eval.get())}) {
          auto found = reference_logps(rank.stepper, collectives, *rows, 5, at::kCPU, {});
          ASSERT_TRUE(found) << found.error().to_string();
          *to = std::move(*found);
        }
      }
      const ReferenceLogps* known = train ? &*train : nullptr;
      const data::Sampler sampler({.rows = opened.trained,
                                   .accumulation = 2 / world,
                                   .world = world,
                                   .micro_batch = 2,
                                   .shuffle = false});
      for (int64_t step = 0; step < kSteps; ++step) {
        std::vector<models::MicroBatch> batches, beside;
        std::vector<Answers> answers, beside_answers;
        for (int64_t micro = 0; micro < sampler.micro_steps(step); ++micro) {
          std::vector<data::Sample> samples;
          for (int64_t i = 0; i < sampler.micro_rows(step, micro); ++i)
            samples.push_back(
                sample_at(*opened.train, sampler.index(step, micro, collectives.rank(), i), known)
                    .value());
          const data::Batch batch = data::collate(samples);
          batches.push_back(on_device(batch, at::kCPU));
          answers.push_back(answers_of(batch));
          for (const data::Batch& other : batch.beside) {
            beside.push_back(on_device(other, at::kCPU));
            beside_answers.push_back(answers_of(other));
          }
        }
        const double lr = small.config.optimizer.lr;
        const StepResult done = rank.stepper.run({.micro_batches = batches,
                                                  .answers = answers,
                                                  .beside = beside,
                                                  .beside_answers = beside_answers,
                                                  .step = step,
                                                  .rates = {.lr = lr, .previous_lr = lr}});
        if (collectives.rank() == 0) seen.steps.push_back(done);
        if ((step + 1) % 10 != 0) continue;
        const EvalRows rows{.dataset = opened.eval.get(),
                            .first = opened.first_evaluated,
                            .count = opened.eval->rows() - opened.first_evaluated,
                            .reference = eval ? &*eval : nullptr};
        const auto got = evaluate_answers(rank.stepper, collectives, rows, 3, at::kCPU, {});
        ASSERT_TRUE(got) << got.error().to_string();
        if (collectives.rank() == 0) seen.evals[step + 1] = *got;
      }
    });
    return seen;
  }

  /// sppo_hard squares log-probabilities, of which TRL's fp32 sums are 2e-5 off.
  static double tolerance_of(const json& one) {
    return one["options"].value("loss_type", json()) == json::array({"sppo_hard"}) ? 5e-5 : 1e-5;
  }
  /// A reward is beta times a difference of two sums in fp32: their last place, which moves with the
  /// instruction set that libtorch chooses (TRL's own by up to 1.7e-5 over 20 steps).
  static double last_place(const json& one, const json& theirs, const std::string& name) {
    const size_t slash = name.find("rewards/");
    if (slash == std::string::npos) return 0;
    double sums = 0;
    for (const char* answer : {"chosen", "rejected"})
      if (name.ends_with(answer) || name.ends_with("margins"))
        sums += std::abs(theirs.value(name.substr(0, slash) + "logps/" + answer, 0.0));
    return one["options"]["beta"].get<double>() * sums * 0x1p-23;
  }
  static void expect_near(double own, double theirs, double tolerance, const std::string& what,
                          double more = 0) {
    EXPECT_NEAR(own, theirs, tolerance * std::max(1.0, std::abs(theirs)) + more) << what;
  }
  /// `evaluates`: one rank, whose evaluation batches are TRL's.
  void expect_as_trl(const Seen& seen, const json& one, bool evaluates) const {
    const double tolerance = tolerance_of(one);
    ASSERT_EQ(seen.steps.size(), one["steps"].size());
    for (size_t i = 0; i < seen.steps.size(); ++i) {
      const json& theirs = one["steps"][i];
      const std::string step = " of step " + std::to_string(i + 1);
      expect_near(seen.steps[i].loss, theirs["loss"], tolerance, "loss" + step);
      EXPECT_NEAR(seen.steps[i].grad_norm, theirs["grad_norm"].get<double>(),
                  10 * tolerance * std::max(1.0, theirs["grad_norm"].get<double>()))
          << "grad_norm" << step;
      EXPECT_EQ(seen.steps[i].metrics.size() + 2, theirs.size());
      for (const auto& [name, value] : seen.steps[i].metrics)
        expect_near(value, theirs.at(name), tolerance, name + step, last_place(one, theirs, name));
    }
    if (!evaluates) return;
    for (const json& theirs : one["evals"]) {
      const EvalResult& own = seen.evals.at(theirs["step"]);
      expect_near(own.loss.value(), theirs["eval_loss"], tolerance, "eval_loss");
      EXPECT_EQ(own.rows, one["rows"] == "pairs" ? 8 : 4);
      for (const auto& [name, value] : own.metrics)
        expect_near(value, theirs.at("eval_" + name), tolerance, "eval_" + name,
                    last_place(one, theirs, "eval_" + name));
    }
  }
  const json& oracle_of(const std::string& rows, const std::string& objective,
                        int ranks = 1) const {
    for (const json& one : oracle_["cases"])
      if (one["rows"] == rows && one["objective"] == objective && one.value("ranks", 1) == ranks)
        return one;
    throw std::runtime_error("no case of " + rows);
  }

  std::unique_ptr<data::Tokenizer> tokenizer_;
  json oracle_;
};

TEST_F(Preference, EveryLossAndEveryShapeOfRowsIsTrls) {
  for (const json& one : oracle_["cases"]) {
    if (one.value("ranks", 1) > 1) continue;  // the next test
    SCOPED_TRACE(one["rows"].get<std::string>() + " " + one["objective"].get<std::string>() + " " +
                 one["options"].dump());
    expect_as_trl(run(one, 1, 0), one, true);
  }
}

TEST_F(Preference, EveryStageAndTwoRanksGiveTrlsNumbers) {
  for (const char* objective : {"dpo", "orpo"}) {
    const json& one = oracle_of("texts", objective);
    for (const int stage : {0, 1, 2, 3}) {
      for (const int world : {1, 2}) {
        SCOPED_TRACE(std::string(objective) + ", stage " + std::to_string(stage) + ", ranks " +
                     std::to_string(world));
        expect_as_trl(run(one, world, stage, stage == 3), one, world == 1);
      }
    }
  }
}

TEST_F(Preference, RewardIsTrlsAtEveryStageOnOneRankAndOnTwo) {
  for (const char* rows : {"texts", "reward_margins"}) {
    const json& one = oracle_of(rows, "reward");
    for (const int stage : {0, 1, 2, 3}) {
      for (const int world : {1, 2}) {
        SCOPED_TRACE(std::string(rows) + ", stage " + std::to_string(stage) + ", ranks " +
                     std::to_string(world));
        const Seen seen = run(one, world, stage, stage == 3);
        // TRL's least and greatest are means over micro-batches, of which two ranks have one each.
        json theirs = one;
        if (world == 2)
          for (size_t i = 0; i < seen.steps.size(); ++i)
            for (const char* name : {"min_reward", "max_reward"}) {
              const double own = seen.steps[i].metrics.at(name);
              const double mean = one["steps"][i][name];
              EXPECT_TRUE(std::string(name) == "min_reward" ? own <= mean + 1e-5
                                                            : own >= mean - 1e-5);
              theirs["steps"][i][name] = own;
            }
        expect_as_trl(seen, theirs, world == 1);
      }
    }
  }
}

/// kto's KL term is a mean over the ranks: TRL ran on as many.
TEST_F(Preference, KtoIsTrlsAtEveryStageOnOneRankAndOnTwo) {
  for (const int ranks : {1, 2}) {
    const json& one = oracle_of("texts", "kto", ranks);
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", ranks " + std::to_string(ranks));
      expect_as_trl(run(one, ranks, stage, stage == 3), one, ranks == 1);
    }
  }
}

/// Whoever computes a row's reference, and beside which rows: the numbers are the same.
TEST_F(Preference, TheReferenceIsTheModelItStartsFrom) {
  const Seen seen = run(oracle_of("texts", "dpo"), 2, 3);
  EXPECT_NEAR(seen.steps[0].loss, std::log(2), 1e-6);
  EXPECT_NEAR(seen.steps[0].metrics.at("rewards/chosen"), 0, 1e-5);
  EXPECT_NEAR(seen.steps[0].metrics.at("rewards/margins"), 0, 1e-5);
}

/// The file in the output directory stands for the pass and for the weights that it needs.
TEST_F(Preference, TheReferenceIsKeptInTheOutputDirectory) {
  const std::string out = testing::TempDir() + "reference-" + std::to_string(getpid());
  std::filesystem::create_directories(out);
  const json& one = oracle_of("texts", "dpo");
  SmallRun small{.model = "tiny-llama", .world = 2, .config = small_config(3, 2, 1)};
  small.objective = dsconfig::objective_of(arguments(one));
  small.normalization = dsconfig::LossNormalization::MicroBatch;
  std::vector<std::vector<References>> found(2);
  // What is left of the model when its weights are no longer needed, somewhere else.
  const std::string moved = out + "/moved";
  std::filesystem::create_directories(moved);
  std::filesystem::copy(fixture("tiny-llama") + "/config.json", moved);
  for (int attempt = 0; attempt < 4; ++attempt) {
    std::vector<std::optional<References>> seen(2);
    testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
      PosixFiles files;
      Inputs in;
      in.objective = small.objective;
      in.job.output_dir = out;
      // The second attempt finds the file, and needs no model.
      in.job.training.model_name_or_path = fixture("tiny-llama");
      if (attempt >= 2) in.objective.max_prompt_length = 3;  // other rows: they are computed again
      if (attempt == 3) in.job.training.model_name_or_path = moved;
      in.resolution.config = small.config;
      in.dataset =
          std::move(*data::Dataset::open(fixture("preference") + "/texts.jsonl", tokenizer_.get(),
                                         {.aim = data::RowAim::Pairs,
                                          .max_prompt_length = in.objective.max_prompt_length,
                                          .vocab_size = 128}));
      in.data_record = collectives.rank() == 0 ? json{{"train", "x"}} : json();
      Rank rank(small, collectives);
      auto got = find_references(files, in, rank.state, rank.stepper, Events(-1), at::kCPU, {});
      ASSERT_TRUE(got) << got.error().to_string();
      seen[static_cast<size_t>(collectives.rank())] = std::move(*got);
      if (attempt == 0) {  // a stop that is asked for is no error, and nothing is written
        in.objective.max_prompt_length = 1;
        const auto stopped = find_references(files, in, rank.state, rank.stepper, Events(-1),
                                             at::kCPU, [] { return true; });
        ASSERT_TRUE(stopped);
        EXPECT_FALSE(*stopped);
      }
    });
    ASSERT_TRUE(seen[0] && seen[1]);
    EXPECT_EQ(seen[0]->train, seen[1]->train);
    EXPECT_TRUE(seen[0]->eval.empty());
    for (int rank = 0; rank < 2; ++rank)
      found[static_cast<size_t>(rank)].push_back(*seen[static_cast<size_t>(rank)]);
  }
  EXPECT_EQ(found[0][1].train, found[0][0].train) << "bit for bit, from the file";
  EXPECT_NE(found[0][2].train, found[0][0].train) << "of prompts that are cut";
  EXPECT_EQ(found[0][3].train, found[0][2].train) << "the model is known again by content";
  EXPECT_EQ(std::ssize(found[0][0].train), 16);
  std::filesystem::remove_all(out);
}

}  // namespace
}  // namespace dsj::train
