// The losses that judge whole answers: values by hand, and slopes against differences of the value.
#include "engine/optim/preference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace dsj::optim {
namespace {

using dsconfig::Objective;
using dsconfig::PairLoss;
using Kind = Objective::Kind;

constexpr PairLoss kAll[] = {PairLoss::Sigmoid, PairLoss::Hinge,      PairLoss::Ipo,
                             PairLoss::Robust,  PairLoss::ExoPair,    PairLoss::NcaPair,
                             PairLoss::BcoPair, PairLoss::SppoHard,   PairLoss::ApoZero,
                             PairLoss::ApoDown, PairLoss::SigmoidNorm};

/// One pair with log-ratios 2 and -1, of 4 and 5 tokens.
const std::vector<Answer> kPair = {{.logp = -8, .reference = -10, .tokens = 4, .targets = 4},
                                   {.logp = -12, .reference = -11, .tokens = 5, .targets = 5}};

TEST(Preference, ValuesByHand) {
  const auto loss = [](PairLoss kind, double smoothing = 0) {
    return judge({.kind = Kind::Dpo, .loss = kind, .beta = 0.5, .label_smoothing = smoothing},
                 kPair)
        .loss;
  };
  const auto g = [](double x) { return 1 / (1 + std::exp(-x)); };
  constexpr double kClose = 1e-12;
  EXPECT_NEAR(loss(PairLoss::Sigmoid), -std::log(g(1.5)), kClose);
  EXPECT_NEAR(loss(PairLoss::Sigmoid, 0.1), -0.9 * std::log(g(1.5)) - 0.1 * std::log(g(-1.5)),
              kClose);
  EXPECT_NEAR(loss(PairLoss::Robust, 0.1),
              (-0.9 * std::log(g(1.5)) + 0.1 * std::log(g(-1.5))) / 0.8, kClose);
  EXPECT_NEAR(loss(PairLoss::Hinge), 0, kClose);
  EXPECT_NEAR(loss(PairLoss::Ipo), std::pow(0.5 + 0.2 - 1, 2), kClose);
  EXPECT_NEAR(loss(PairLoss::ExoPair, 0.1),
              g(1.5) * std::log(g(1.5) / 0.9) + g(-1.5) * std::log(g(-1.5) / 0.1), kClose);
  EXPECT_NEAR(loss(PairLoss::NcaPair), -std::log(g(1)) - std::log(g(-1)) / 2 - std::log(g(0.5)) / 2,
              kClose);
  EXPECT_NEAR(loss(PairLoss::BcoPair), -std::log(g(1)) - std::log(g(0.5)), kClose);
  EXPECT_NEAR(loss(PairLoss::SppoHard), 1 + 0, kClose);
  EXPECT_NEAR(loss(PairLoss::ApoZero), 1 - g(1) + g(-0.5), kClose);
  EXPECT_NEAR(loss(PairLoss::ApoDown), g(1) + 1 - g(1.5), kClose);
  EXPECT_NEAR(loss(PairLoss::SigmoidNorm), -std::log(g(0.35)), kClose);
}

/// loss_type ["sigmoid", "sft"]: the mean over the targets of all chosen answers.
TEST(Preference, TheChosenAnswersLossBesideIt) {
  std::vector<Answer> two = kPair;
  two.push_back({.logp = -5, .reference = -4, .tokens = 2, .targets = 2});
  two.push_back({.logp = -7, .reference = -7, .tokens = 3, .targets = 3});
  two.push_back({});  // a pair that was cut
  two.push_back({});
  Objective objective{.kind = Kind::Dpo, .beta = 0.5};
  const Judged plain = judge(objective, two);
  objective.sft_weight = 0.25;
  const Judged beside = judge(objective, two);
  EXPECT_NEAR(beside.loss, plain.loss + 0.25 * (8 + 5) / 6.0, 1e-12);
  for (const size_t chosen : {0, 2})
    EXPECT_NEAR(beside.slopes[chosen], plain.slopes[chosen] - 0.25 / 6, 1e-12);
  for (const size_t other : {1, 3, 4, 5}) EXPECT_EQ(beside.slopes[other], plain.slopes[other]);
  EXPECT_EQ(beside.tallies, plain.tallies);
}

TEST(Preference, MetricsAreTrlsMeansOverThePairs) {
  std::vector<Answer> two = kPair;
  two.push_back({.logp = -5, .reference = -4, .tokens = 2, .targets = 2});
  two.push_back({.logp = -7, .reference = -7, .tokens = 3, .targets = 3});
  const Objective objective{.kind = Kind::Dpo, .beta = 0.5};
  const Judged judged = judge(objective, two);
  const std::map<std::string, double> expected = {
      {"rewards/chosen", (1 - 0.5) / 2}, {"rewards/rejected", -0.25},
      {"rewards/accuracies", 0.5},       {"rewards/margins", (1.5 - 0.5) / 2},
      {"logps/chosen", (-8 - 5) / 2.0},  {"logps/rejected", (-12 - 7) / 2.0}};
  EXPECT_EQ(metrics_of(objective, judged.tallies), expected);
  EXPECT_EQ(judged.judged, 2);
  EXPECT_EQ(judged.tallies.size(), tally_names(objective).size());
}

/// A metric is the mean of the micro-steps that have it, each over the ranks' sums.
TEST(Preference, MetricsAreMeansOverTheMicroStepsThatHaveThem) {
  const Objective kto{.kind = Kind::Kto, .beta = 1};
  const auto tallies = [&](std::vector<Answer> answers, double kl) {
    return judge(kto, answers, kl).tallies;
  };
  const Answer good{.logp = -4, .reference = -5, .tokens = 2, .targets = 2};
  const Answer bad{.logp = -9, .reference = -6, .tokens = 2, .targets = 2, .good = false};
  std::vector<Tally> steps = tallies({good, good, bad}, 0.5);
  const std::vector<Tally> second = tallies({good}, 0.25);
  steps.insert(steps.end(), second.begin(), second.end());
  const std::map<std::string, double> expected = {
      {"kl", 0.375},           {"logps/chosen", -4},     {"logps/rejected", -9},
      {"rewards/chosen", 1.0}, {"rewards/margins", 4.0}, {"rewards/rejected", -3}};
  EXPECT_EQ(metrics_of(kto, steps), expected);
  EXPECT_FALSE(metrics_of(kto, second).contains("rewards/margins")) << "no bad answer";
}

TEST(Preference, RewardByHand) {
  const auto g = [](double x) { return 1 / (1 + std::exp(-x)); };
  Objective reward{.kind = Kind::Reward, .center_rewards = 0.25};
  const std::vector<Answer> answers = {{.logp = 1, .targets = 1, .margin = 0.5},
                                       {.logp = -2, .targets = 1},
                                       {.logp = 0.25, .targets = 1},
                                       {.logp = 0.75, .targets = 1},
                                       {},
                                       {}};  // of a rank without rows
  const Judged judged = judge(reward, answers);
  EXPECT_NEAR(judged.loss, (-std::log(g(2.5)) - std::log(g(-0.5)) + 0.25 * (1 + 1)) / 2, 1e-12);
  EXPECT_EQ(judged.judged, 2);
  EXPECT_EQ(judged.slopes[4], 0);
  const std::map<std::string, double> expected = {{"accuracy", 0.5},
                                                  {"margin", 1.25},
                                                  {"max_reward", 1},
                                                  {"mean_reward", 0},
                                                  {"min_reward", -2}};
  EXPECT_EQ(metrics_of(reward, judged.tallies), expected);
  EXPECT_TRUE(metrics_of(reward, judge(reward, std::vector<Answer>(2)).tallies).empty());
}

/// Slopes against differences of the loss, over drawn scores and margins.
TEST(Preference, RewardsSlopesAreThoseOfItsLoss) {
  std::mt19937 draw(11);
  std::normal_distribution<double> normal(0, 2);
  for (int round = 0; round < 50; ++round) {
    const Objective reward{.kind = Kind::Reward, .center_rewards = round % 2 * 0.1};
    std::vector<Answer> answers(6);
    for (Answer& answer : answers)
      answer = {.logp = normal(draw), .targets = 1, .margin = normal(draw)};
    const Judged judged = judge(reward, answers);
    for (size_t i = 0; i < answers.size(); ++i) {
      const auto moved = [&](double by) {
        auto other = answers;
        other[i].logp += by;
        return judge(reward, other).loss;
      };
      EXPECT_NEAR(judged.slopes[i], (moved(1e-5) - moved(-1e-5)) / 2e-5, 1e-7);
    }
  }
}

TEST(Preference, KtoByHand) {
  const auto g = [](double x) { return 1 / (1 + std::exp(-x)); };
  std::vector<Answer> answers = kPair;  // log-ratios 2 and -1
  answers[1].good = false;
  Objective kto{.kind = Kind::Kto, .beta = 0.5, .desirable_weight = 2, .undesirable_weight = 3};
  EXPECT_NEAR(judge(kto, answers, 0.4).loss,
              (2 * (1 - g(0.5 * (2 - 0.4))) + 3 * (1 - g(0.5 * (0.4 + 1)))) / 2, 1e-12);
  kto.mark_loss = dsconfig::MarkLoss::ApoZeroUnpaired;
  EXPECT_NEAR(judge(kto, answers).loss, (2 * (1 - g(1)) + 3 * g(-0.5)) / 2, 1e-12);
  EXPECT_FALSE(kto.estimates_kl());
  answers.push_back({.tokens = 1});  // cut before its answer
  EXPECT_NEAR(judge(kto, answers).loss, (2 * (1 - g(1)) + 3 * g(-0.5)) / 2, 1e-12);
  EXPECT_EQ(judge(kto, answers).judged, 2);
  EXPECT_EQ(moved(answers), (Tally{1, 2}));
  EXPECT_EQ(kl_of({0.75, 3}), 0.25);
  EXPECT_EQ(kl_of({-0.75, 3}), 0) << "as TRL's clamp";
  EXPECT_EQ(kl_of({}), 0);
}

TEST(Preference, APairThatWasCutBeforeItsAnswersHasNoPart) {
  std::vector<Answer> two = kPair;
  two.insert(two.begin(), 2, Answer{.tokens = 1});
  for (const PairLoss loss : kAll) {
    const Objective objective{.kind = Kind::Dpo, .loss = loss, .label_smoothing = 0.1};
    const Judged one = judge(objective, kPair), both = judge(objective, two);
    EXPECT_EQ(both.loss, one.loss);
    EXPECT_EQ(both.tallies, one.tallies);
    EXPECT_EQ(both.slopes[0], 0);
    EXPECT_EQ(both.slopes[2], one.slopes[0]);
  }
  const Judged none = judge({.kind = Kind::Dpo}, std::vector<Answer>(4));
  EXPECT_EQ(none.loss, 0);
  EXPECT_EQ(none.judged, 0);
  EXPECT_EQ(none.slopes, std::vector<double>(4));
}

/// The odds of the mean probabilities, as the paper writes them.
TEST(Preference, OrpoByHand) {
  const std::vector<Answer> parts = {{.logp = -6, .targets = 3},
                                     {.logp = -8, .tokens = 4, .targets = 4},
                                     {.logp = -15, .tokens = 5, .targets = 5}};
  const Objective objective{.kind = Kind::Orpo, .beta = 0.5};
  const Judged judged = judge(objective, parts);
  const auto metrics = metrics_of(objective, judged.tallies);
  const double pc = std::exp(-2), pr = std::exp(-3);
  const double odds = std::log(pc / (1 - pc)) - std::log(pr / (1 - pr));
  const double ratio = std::log(1 / (1 + std::exp(-odds)));
  EXPECT_NEAR(judged.loss, 2 - 0.5 * ratio, 1e-12);
  EXPECT_NEAR(metrics.at("nll_loss"), 2, 1e-12);
  EXPECT_NEAR(metrics.at("log_odds_ratio"), ratio, 1e-12);
  EXPECT_NEAR(metrics.at("log_odds_chosen"), odds, 1e-12);
  EXPECT_NEAR(metrics.at("logps/chosen"), -2, 1e-12);
  EXPECT_NEAR(metrics.at("rewards/margins"), 0.5, 1e-12);
}

/// The rule of every loss: a slope is the derivative of the value, on drawn pairs.
TEST(Preference, SlopesAreTheDerivativesOfTheLoss) {
  std::mt19937 draw(11);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto check = [&](const Objective& objective, const std::vector<Answer>& parts) {
    const Judged judged = judge(objective, parts);
    constexpr double kStep = 1e-5;
    for (size_t i = 0; i < parts.size(); ++i) {
      std::vector<Answer> more = parts, less = parts;
      more[i].logp += kStep;
      less[i].logp -= kStep;
      const double slope =
          (judge(objective, more).loss - judge(objective, less).loss) / (2 * kStep);
      EXPECT_NEAR(judged.slopes[i], slope, 1e-6 * std::max(1.0, std::abs(slope)))
          << "kind " << static_cast<int>(objective.kind) << " loss "
          << static_cast<int>(objective.loss) << " part " << i;
    }
  };
  for (int trial = 0; trial < 30; ++trial) {
    const double beta = std::exp(uniform(draw));
    const double smoothing = 0.05 + 0.2 * std::abs(uniform(draw));
    std::vector<Answer> pairs;
    for (int i = 0; i < 6; ++i) {
      const int64_t tokens = 1 + i * 3;
      const double logp = (-2 + uniform(draw)) * static_cast<double>(tokens);
      pairs.push_back({.logp = logp,
                       .reference = logp + 3 * uniform(draw),
                       .tokens = tokens,
                       .targets = tokens});
    }
    for (const PairLoss loss : kAll)
      check({.kind = Kind::Dpo, .loss = loss, .beta = beta, .label_smoothing = smoothing}, pairs);
    check({.kind = Kind::Orpo, .beta = beta}, pairs);
    for (size_t i = 1; i < pairs.size(); i += 2) pairs[i].good = false;
    for (const auto loss : {dsconfig::MarkLoss::Kto, dsconfig::MarkLoss::ApoZeroUnpaired})
      check({.kind = Kind::Kto, .mark_loss = loss, .beta = beta, .desirable_weight = smoothing},
            pairs);
  }
}

/// Large ratios neither overflow nor lose the slope.
TEST(Preference, IsFiniteFarFromTheReference) {
  for (const double far : {-2000.0, 2000.0}) {
    std::vector<Answer> pair = kPair;
    pair[0].logp += far;
    for (const PairLoss loss : kAll) {
      const Judged judged = judge({.kind = Kind::Dpo, .loss = loss, .label_smoothing = 0.1}, pair);
      EXPECT_TRUE(std::isfinite(judged.loss)) << static_cast<int>(loss);
      for (const double slope : judged.slopes) EXPECT_TRUE(std::isfinite(slope));
    }
  }
}

}  // namespace
}  // namespace dsj::optim
