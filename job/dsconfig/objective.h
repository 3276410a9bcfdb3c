// What a run learns: spec.training.objective and the arguments that belong to it (docs/objectives.md).
// Pure. Tested by: tests/job/dsconfig/objective_test.cc
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

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

/// In the output directory: the rows' log-probabilities under the model that the run starts from.
inline constexpr char kReferenceFile[] = "reference_logps.json";

struct Objective {
  enum class Kind {
    Sft,       ///< the answers of the rows
    Pretrain,  ///< every token of texts
    Dpo,       ///< of two answers the chosen one, beside the model that the run starts from
    Orpo,      ///< the same without that model
    Kto,       ///< answers that are marked good or bad
    Reward,    ///< a score of a whole row, of two answers the chosen one's above the other's
  };
  Kind kind = Kind::Sft;
  PairLoss loss = PairLoss::Sigmoid;
  MarkLoss mark_loss = MarkLoss::Kto;
  double beta = 0.1, label_smoothing = 0;
  double sft_weight = 0;  ///< of dpo: of the chosen answers' loss as sft has it
  double desirable_weight = 1, undesirable_weight = 1;
  double center_rewards = 0;      ///< of reward: the weight of (chosen + rejected)^2
  int64_t max_prompt_length = 0;  ///< in tokens; 0: any

  /// Whether a row is two answers to one prompt: two rows of tokens.
  bool pairs() const { return kind == Kind::Dpo || kind == Kind::Orpo || scores(); }
  /// Whether the model is a reward model (job/layout/reward_model.h).
  bool scores() const { return kind == Kind::Reward; }
  /// Whether the loss is a function of whole answers' log-probabilities or scores, not of each token's.
  bool judges() const { return pairs() || kind == Kind::Kto; }
  /// Whether it compares with the model that the run starts from.
  bool has_reference() const { return kind == Kind::Dpo || kind == Kind::Kto; }
  /// Whether its loss needs to know how far the model has moved: the KL term, which answers beside
  /// the prompts of other rows estimate.
  bool estimates_kl() const { return kind == Kind::Kto && mark_loss == MarkLoss::Kto; }
  /// Rows of tokens that a row of the data becomes, for training.
  int64_t rows_of_sample() const { return pairs() ? 2 : 1; }
};

/// Of how many rows the answers change places for the KL term (Dataset::rotate_answers): a rank's
/// micro-batch, as in TRL, which refuses one of a single row. There it is a step's rows.
inline int64_t rotated_rows(int64_t micro_batch, int64_t train_batch) {
  return micro_batch > 1 ? micro_batch : std::max<int64_t>(2, train_batch);
}

/// As the arguments say. A name that check_arguments() refuses counts as the default.
Objective objective_of(const TrainingArgs& args);
/// "dpo".
std::string name_of(Objective::Kind kind);

}  // namespace dsj::dsconfig
