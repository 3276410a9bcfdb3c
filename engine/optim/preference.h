// Objectives that judge whole answers: loss, its derivatives and TRL's metrics as functions of the
// answers' log-probabilities. Pure, torch-free. Formulas: TRL 1.16, the trainers' _compute_loss.
//
//   s  an answer's log-probability minus the reference's; c the chosen one, r the rejected one
//   n  an answer's tokens;  b beta;  e label smoothing;  h = b (s_c - s_r);  g(x) = 1 / (1 + exp(-x))
//
//   sigmoid       -(1 - e) log g(h) - e log g(-h)              e: as TRL before 1.0 (cDPO)
//   robust        (-(1 - e) log g(h) + e log g(-h)) / (1 - 2 e)
//   hinge         max(0, 1 - h)
//   ipo           (s_c / n_c - s_r / n_r - 1 / (2 b))^2
//   exo_pair      g(h) (log g(h) - log(1 - e)) + g(-h) (log g(-h) - log e)
//   nca_pair      -log g(b s_c) - log g(-b s_c) / 2 - log g(-b s_r) / 2
//   bco_pair      -log g(b s_c) - log g(-b s_r)
//   sppo_hard     (s_c - 1 / (2 b))^2 + (s_r + 1 / (2 b))^2
//   apo_zero      1 - g(b s_c) + g(b s_r)
//   apo_down      g(b s_c) + 1 - g(h)
//   sigmoid_norm  -log g(b (s_c / n_c - s_r / n_r))
//
// Each plus Objective::sft_weight times the mean loss of all targets of the chosen answers (TRL's
// loss_type sft).
//
// orpo (ORPOTrainer), with m the mean log-probability of an answer's targets and o = m_c - m_r -
// log(1 - exp(m_c)) + log(1 - exp(m_r)): the mean loss of all targets of the chosen rows, prompts
// too, minus b times the mean of log g(o).
//
// kto (KTOTrainer), for an answer marked good or bad, with w its weight and k the KL term: how far
// the model has moved from the reference, in log-probability, on answers paired with prompts of
// other rows. k is the mean of the ranks' means over a micro-step's rows, at least 0, without
// derivative.
//
//   kto                good: w (1 - g(b (s - k)))   bad: w (1 - g(b (k - s)))
//   apo_zero_unpaired  good: w (1 - g(b s))         bad: w g(b s)
//
// reward (RewardTrainer), for a pair's scores c and r with margin m:
// -log g(c - r - m) + a (c + r)^2, with a = Objective::center_rewards.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "job/dsconfig/config/objective.h"

namespace dsj::optim {

/// An answer of a micro-batch, or the prompt before it.
struct Answer {
  double logp = 0;       ///< the sum over its targets
  double reference = 0;  ///< the same under the initial model
  int64_t tokens = 0;    ///< of the answer
  int64_t targets = 0;   ///< tokens among them that have a predecessor
  bool good = true;      ///< kto only
  double margin = 0;     ///< reward only, of the chosen answer; `logp` is a score
};

/// The targets of each answer.
std::vector<int64_t> targets_of(std::span<const Answer> answers);

/// A rank's contribution to a metric, which is sum / count over the ranks. Count 0: none.
struct Tally {
  double sum = 0, count = 0;
  bool operator==(const Tally&) const = default;
};

struct Judged {
  double loss = 0;             ///< the mean over pairs, or kto's answers
  std::vector<double> slopes;  ///< per answer: the derivative of `loss` by its logp
  std::vector<Tally> tallies;  ///< in the order of tally_names()
  int64_t judged = 0;          ///< number of pairs, or of kto's answers
};

/// `answers`: chosen and rejected alternately; for orpo the chosen row's prompt before them; for
/// kto one per row. A pair truncated before its answers is left out of the means: neither answer
/// has a target (orpo: one has none); so is such an answer of kto. TRL removes such rows from the
/// data. If none is left, everything is 0. `kl`: kto's k; 0 for losses without. DSJ_CHECK: it
/// judges no answers.
Judged judge(const dsconfig::Objective& objective, std::span<const Answer> answers, double kl = 0);
/// The tallies of each micro-batch, sorted: rewards/chosen, rewards/rejected, logps/chosen,
/// logps/rejected; pairs also rewards/accuracies; orpo: nll_loss, log_odds_ratio, log_odds_chosen,
/// and logps that are means over an answer's targets; kto: kl; reward: accuracy, margin,
/// max_reward, mean_reward, min_reward.
const std::vector<std::string>& tally_names(const dsconfig::Objective& objective);
/// Whether the tally is an extreme of a micro-batch's values, not a sum: -1 for the minimum, 1 for
/// the maximum, 0 for a sum.
int extreme_of(const std::string& name);
/// TRL's metrics of some micro-steps, from their concatenated `tallies`, summed over the ranks: for
/// each the mean over the micro-steps that have it. Also rewards/margins: the mean difference, over
/// those with both rewards. A metric that no micro-step has is left out.
std::map<std::string, double> metrics_of(const dsconfig::Objective& objective,
                                         std::span<const Tally> tallies);

/// kto's k of a rank's micro-batch, before the mean over ranks and the clamp at 0: over the answers
/// with targets. Count 0 if there are none.
Tally moved(std::span<const Answer> answers);
/// k, from the sums over the ranks of their means and of the number of ranks with one.
double kl_of(const Tally& means);

}  // namespace dsj::optim
