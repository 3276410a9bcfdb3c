// What a micro-batch counts in the loss.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "engine/optim/averaging.h"

namespace dsj::optim {
namespace {

using dsconfig::LossNormalization;

/// The step's loss by the weights: the mean over ranks of each rank's weighed sum of means.
double weighed(LossNormalization normalization,
               const std::vector<std::vector<std::vector<double>>>& ranks) {
  int64_t all = 0;
  for (const auto& rank : ranks)
    for (const auto& micro : rank) all += std::ssize(micro);
  double loss = 0;
  for (const auto& rank : ranks) {
    std::vector<int64_t> targets;
    for (const auto& micro : rank) targets.push_back(std::ssize(micro));
    const auto weights =
        loss_weights(normalization, targets, all, {.ranks = static_cast<int>(std::ssize(ranks))});
    EXPECT_EQ(weights.size(), rank.size());
    for (size_t i = 0; i < rank.size(); ++i) {
      if (rank[i].empty()) continue;  // a micro-batch without a target has no loss
      loss += weights[i] * std::accumulate(rank[i].begin(), rank[i].end(), 0.0) /
              static_cast<double>(rank[i].size());
    }
  }
  return loss / static_cast<double>(ranks.size());
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Drawn losses of targets, by rank and micro-step, against the means written out.
TEST(LossWeights, AreTheMeansTheyName) {
  std::mt19937_64 draws(4);
  const auto draw = [&](uint64_t most) { return draws() % most; };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::vector<std::vector<double>>> ranks(1 + draw(5));
    const uint64_t micro_steps = 1 + draw(5), most = 1 + draw(40);
    std::vector<double> all, of_ranks, of_micro;
    for (auto& rank : ranks) {
      rank.resize(micro_steps);
      std::vector<double> own;
      for (auto& micro : rank) {
        for (uint64_t i = draw(most); i > 0; --i)
          micro.push_back(static_cast<double>(draw(1000)) / 100);
        own.insert(own.end(), micro.begin(), micro.end());
        of_micro.push_back(mean(micro));
      }
      all.insert(all.end(), own.begin(), own.end());
      of_ranks.push_back(mean(own));
    }
    ASSERT_NEAR(weighed(LossNormalization::Token, ranks), mean(all), 1e-12);
    ASSERT_NEAR(weighed(LossNormalization::Rank, ranks), mean(of_ranks), 1e-12);
    ASSERT_NEAR(weighed(LossNormalization::MicroBatch, ranks), mean(of_micro), 1e-12);
  }
}

/// Drawn groups, whose targets are dealt to their ranks: the ranks' losses have the groups' mean.
TEST(LossWeights, RanksThatShareMicroBatchesWeighWhatOneWould) {
  std::mt19937_64 draws(5);
  const auto draw = [&](uint64_t most) { return static_cast<int64_t>(draws() % most); };
  for (int round = 0; round < 500; ++round) {
    const int groups = 1 + static_cast<int>(draw(4)), parts = 1 + static_cast<int>(draw(4));
    const int64_t micro_steps = 1 + draw(4);
    std::vector<std::vector<int64_t>> own(static_cast<size_t>(groups * parts));  // [rank][micro]
    std::vector<std::vector<int64_t>> whole(static_cast<size_t>(groups));
    int64_t all = 0;
    for (int rank = 0; rank < groups * parts; ++rank) {
      auto& of_group = whole[static_cast<size_t>(rank / parts)];
      of_group.resize(static_cast<size_t>(micro_steps));
      for (int64_t i = 0; i < micro_steps; ++i) {
        own[rank].push_back(draw(6));
        of_group[i] += own[rank][i];
        all += own[rank][i];
      }
    }
    for (const auto normalization :
         {LossNormalization::Token, LossNormalization::Rank, LossNormalization::MicroBatch}) {
      for (int group = 0; group < groups; ++group) {
        const auto of_one = loss_weights(normalization, whole[group], all, {groups});
        for (int64_t i = 0; i < micro_steps; ++i) {
          // The gradient of each target in the mean over ranks, as one rank has it in its mean.
          if (whole[group][i] == 0) continue;
          const double each = of_one[i] / static_cast<double>(whole[group][i]) / groups;
          for (int rank = group * parts; rank < (group + 1) * parts; ++rank) {
            const auto weights =
                loss_weights(normalization, whole[group], all, {groups, parts, own[rank]});
            if (own[rank][i] == 0) continue;
            ASSERT_NEAR(weights[i] / static_cast<double>(own[rank][i]) / (groups * parts), each,
                        1e-12);
          }
        }
      }
    }
  }
}

TEST(LossWeights, AStepWithoutATargetDividesByNothing) {
  const std::vector<int64_t> none = {0, 0};
  EXPECT_EQ(loss_weights(LossNormalization::Token, none, 0, {3}), (std::vector<double>{0, 0}));
  EXPECT_EQ(loss_weights(LossNormalization::Rank, none, 7, {3}), (std::vector<double>{0, 0}));
  EXPECT_EQ(loss_weights(LossNormalization::Token, none, 7, {3}), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace dsj::optim
