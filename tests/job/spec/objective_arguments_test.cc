// The arguments of objectives as TRL's and LLaMA-Factory's lines write them.
#include <gtest/gtest.h>

#include "job/spec/job.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

json training_of(const std::vector<std::string>& more) {
  std::vector<std::string> line = {"--deepspeed=ds.json"};
  line.insert(line.end(), more.begin(), more.end());
  const auto read = manifest_from_arguments(line, false);
  EXPECT_TRUE(read) << (read ? "" : read.error().to_string());
  return read ? read->manifest["spec"]["training"] : json();
}

TEST(ObjectiveArguments, TrlsNames) {
  EXPECT_EQ(training_of({"--objective", "dpo", "--beta", "0.2", "--loss_type", "ipo",
                         "--label_smoothing", "0", "--max_length", "1024", "--max_prompt_length",
                         "512", "--precompute_ref_log_probs", "True", "--disable_dropout", "True",
                         "--f_divergence_type", "reverse_kl"}),
            json({{"objective", "dpo"},
                  {"beta", 0.2},
                  {"lossType", "ipo"},
                  {"labelSmoothing", 0.0},
                  {"maxSeqLength", 1024},
                  {"maxPromptLength", 512}}));
}

TEST(ObjectiveArguments, KtosNames) {
  EXPECT_EQ(training_of({"--objective", "kto", "--loss_type", "apo_zero_unpaired", "--beta", "0.2",
                         "--desirable_weight", "1.33", "--undesirable_weight", "1",
                         "--train_sampling_strategy", "sequential"}),
            json({{"objective", "kto"},
                  {"lossType", "apo_zero_unpaired"},
                  {"beta", 0.2},
                  {"desirableWeight", 1.33},
                  {"undesirableWeight", 1.0},
                  {"shuffle", false}}));
  EXPECT_EQ(training_of({"--stage", "kto", "--pref_beta", "0.1", "--kto_chosen_weight", "1.0",
                         "--kto_rejected_weight", "1.5"}),
            json({{"objective", "kto"},
                  {"beta", 0.1},
                  {"desirableWeight", 1.0},
                  {"undesirableWeight", 1.5}}));
}

TEST(ObjectiveArguments, LlamaFactorysNames) {
  EXPECT_EQ(training_of({"--stage", "dpo", "--pref_beta", "0.3", "--pref_loss", "hinge",
                         "--pref_ftx", "0"}),
            json({{"objective", "dpo"}, {"beta", 0.3}, {"lossType", "hinge"}}));
  EXPECT_EQ(training_of({"--stage", "pt"}), json({{"objective", "pretrain"}}));
  EXPECT_EQ(training_of({"--stage", "rm"}), json({{"objective", "reward"}}));
  EXPECT_EQ(training_of({"--stage", "sft", "--neftune_noise_alpha", "5", "--label_smoothing_factor",
                         "0.1"}),
            json({{"neftuneNoiseAlpha", 5.0}, {"labelSmoothingFactor", 0.1}}));
}

}  // namespace
}  // namespace dsj::jobspec
