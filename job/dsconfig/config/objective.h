// What a run learns: spec.training.objective and the arguments for it (docs/objectives.md).
// Pure. Tested by: tests/job/dsconfig/config/objective_test.cc
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "job/training_args.h"

namespace dsj::dsconfig {

/// The losses of dpo, by TRL's names (engine/optim/preference.h has their formulas).
enum class PairLoss {
  Sigmoid,
  Hinge,
  Ipo,
  Robust,
  ExoPair,
  NcaPair,
  BcoPair,
  SppoHard,
  ApoZero,
  ApoDown,
  SigmoidNorm
};

/// The losses of kto, by TRL's names.
enum class MarkLoss { Kto, ApoZeroUnpaired };

/// In the output directory: log-probabilities of the rows under the model at the start of the run.
inline constexpr char kReferenceFile[] = "reference_logps.json";

struct Objective {
  enum class Kind {
    Sft,       ///< learns the answers of the rows
    Pretrain,  ///< learns every token of texts
    Dpo,       ///< prefers the chosen of two answers; compares with the starting model
    Orpo,      ///< the same without a reference model
    Kto,       ///< learns from answers marked good or bad
    Reward,    ///< scores rows: the chosen of two answers above the rejected one
  };
  Kind kind = Kind::Sft;
  PairLoss loss = PairLoss::Sigmoid;
  MarkLoss mark_loss = MarkLoss::Kto;
  double beta = 0.1, label_smoothing = 0;
  bool dft = false;       ///< sft and pretrain: each token's loss times its probability
  double sft_weight = 0;  ///< dpo: weight of the chosen answers' sft loss
  double desirable_weight = 1, undesirable_weight = 1;
  double center_rewards = 0;      ///< reward: weight of (chosen + rejected)^2
  int64_t max_prompt_length = 0;  ///< in tokens; 0: no limit

  /// Whether a sample is a pair of answers to one prompt: two rows of tokens.
  bool pairs() const { return kind == Kind::Dpo || kind == Kind::Orpo || scores(); }
  /// Whether the model is a reward model (job/layout/reward_model.h).
  bool scores() const { return kind == Kind::Reward; }
  /// Whether the loss depends on log-probabilities or scores of whole answers, not of single tokens.
  bool judges() const { return pairs() || kind == Kind::Kto; }
  /// Whether the loss compares with the model at the start of the run.
  bool has_reference() const { return kind == Kind::Dpo || kind == Kind::Kto; }
  /// Whether the loss includes an estimate of the KL divergence from that model, from answers that
  /// are paired with the prompts of other rows.
  bool estimates_kl() const { return kind == Kind::Kto && mark_loss == MarkLoss::Kto; }
  /// Rows of tokens per training sample.
  int64_t rows_of_sample() const { return pairs() ? 2 : 1; }
};

/// The number of rows among which the KL term rotates answers (Dataset::rotate_answers): a rank's
/// micro-batch, as in TRL. TRL refuses a single row; then these are the rows of a step.
inline int64_t rotated_rows(int64_t micro_batch, int64_t train_batch) {
  return micro_batch > 1 ? micro_batch : std::max<int64_t>(2, train_batch);
}

/// The arguments' objective. Names that check_arguments() refuses count as the default.
Objective objective_of(const TrainingArgs& args);
/// "dpo".
std::string name_of(Objective::Kind kind);
/// nullopt if no kind has this name.
std::optional<Objective::Kind> kind_of(const std::string& name);
/// The objective to which the name of a loss belongs: "dpo".
const char* objective_of_loss(std::string_view loss);

}  // namespace dsj::dsconfig
