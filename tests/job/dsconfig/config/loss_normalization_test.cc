#include "job/dsconfig/config/loss_normalization.h"

#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

TEST(LossNormalization, TokenUnlessTheArgumentsNameAnother) {
  const auto origin = [](const TrainingArgs& args) {
    const Resolution r = resolve({{"train_micro_batch_size_per_gpu", 1}}, args, {});
    EXPECT_TRUE(r.runnable());
    const auto found = std::ranges::find(r.origins, "loss_normalization", &Origin::path);
    return found == r.origins.end() ? "" : found->value + " by " + found->from;
  };
  TrainingArgs args;
  EXPECT_EQ(loss_normalization(args), LossNormalization::Token);
  EXPECT_EQ(origin(args), "token by default (Hugging Face)");
  for (const auto one :
       {LossNormalization::Token, LossNormalization::Rank, LossNormalization::MicroBatch}) {
    args.loss_normalization = name_of(one);
    EXPECT_EQ(loss_normalization(args), one);
    EXPECT_EQ(origin(args), name_of(one) + " by training.lossNormalization");
  }
  args.loss_normalization = "sum";
  const Resolution other = resolve({{"train_micro_batch_size_per_gpu", 1}}, args, {});
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.findings.front().path, "training.lossNormalization");
  EXPECT_EQ(other.findings.front().hint, "expected token or rank or micro-batch");
}

}  // namespace
}  // namespace dsj::dsconfig
