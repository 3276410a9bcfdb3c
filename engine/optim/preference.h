// Objectives that judge whole answers: loss, its slopes and TRL's metrics as functions of the answers'
// log-probabilities. Pure, torch-free. Source of the formulas: TRL 1.16, the trainers' _compute_loss.
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
// Each plus Objective::sft_weight times the mean loss of all targets of the chosen answers (TRL's loss_type
// sft).
//
// orpo (ORPOTrainer), with m the mean log-probability of an answer's targets and
// o = m_c - m_r - log(1 - exp(m_c)) + log(1 - exp(m_r)): the mean loss of all targets of the chosen rows,
// prompts too, minus b times the mean of log g(o).
//
// kto (KTOTrainer), of an answer that is marked good or bad, with w its weight and k the KL term: how far
// the model has moved from the reference, in log-probability, on answers beside the prompts of other rows;
// the mean of the ranks' means over a micro-step's rows, at least 0. It has no slope.
//
//   kto                good: w (1 - g(b (s - k)))   bad: w (1 - g(b (k - s)))
//   apo_zero_unpaired  good: w (1 - g(b s))         bad: w g(b s)
//
// reward (RewardTrainer), of a pair's scores c and r with margin m: -log g(c - r - m) + a (c + r)^2, a its
// Objective::center_rewards.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "job/dsconfig/objective.h"

namespace dsj::optim {

/// An answer of a micro-batch, or a prompt before it.
struct Answer {
  double logp = 0;       ///< the sum over its targets
  double reference = 0;  ///< the same of the model that the run starts from
  int64_t tokens = 0;    ///< of the answer
  int64_t targets = 0;   ///< of them, those that another token predicts
  bool good = true;      ///< of kto
  double margin = 0;     ///< of reward, of the chosen answer; its `logp` is a score
};

/// Of each.
std::vector<int64_t> targets_of(std::span<const Answer> answers);

/// What a rank's micro-batch adds to a metric: over the ranks it is sum / count. Count 0: it has none.
struct Tally {
  double sum = 0, count = 0;
  bool operator==(const Tally&) const = default;
};

struct Judged {
  double loss = 0;             ///< the mean over the pairs; kto: over the answers
  std::vector<double> slopes;  ///< of each answer: the derivative of `loss` by its logp
  std::vector<Tally> tallies;  ///< as tally_names()
  int64_t judged = 0;          ///< pairs, or answers of kto
};

/// `answers`: chosen and rejected in turn; orpo: before them the chosen row's prompt; kto: one of each
/// row. A pair that was cut before its answers has no part in the means: neither answer has a target,
/// under orpo one has none; nor has such an answer of kto. TRL leaves such rows out of the data. None
/// left: everything is 0. `kl`: kto's k; 0 where its loss has none. An objective that judges no answers: DSJ_CHECK.
Judged judge(const dsconfig::Objective& objective, std::span<const Answer> answers, double kl = 0);
/// What is counted of each micro-batch, sorted: rewards/chosen, rewards/rejected, logps/chosen,
/// logps/rejected; of pairs also rewards/accuracies; orpo: nll_loss, log_odds_ratio, log_odds_chosen, and
/// its logps are means over an answer's targets; kto: kl. reward:
/// accuracy, margin, max_reward, mean_reward, min_reward.
const std::vector<std::string>& tally_names(const dsconfig::Objective& objective);
/// Whether the tally is the least or the greatest of a micro-batch's values: over the ranks not a sum. -1: the
/// least; 1: the greatest; 0: neither.
int extreme_of(const std::string& name);
/// TRL's metrics of some micro-steps, whose `tallies` follow each other, summed over the ranks: of each the
/// mean over those micro-steps that have it. rewards/margins, too: of those with both rewards, their
/// difference. A metric that none of them has is left out.
std::map<std::string, double> metrics_of(const dsconfig::Objective& objective,
                                         std::span<const Tally> tallies);

/// kto's k of a rank's micro-batch, before the ranks' mean and its clamp at 0: of the answers that have
/// targets. Count 0: there are none.
Tally moved(std::span<const Answer> answers);
/// k, of the sums over the ranks of their means and of how many have one.
double kl_of(const Tally& means);

}  // namespace dsj::optim
