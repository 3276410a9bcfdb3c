// Objectives that judge whole answers: loss, its slopes and TRL's metrics as functions of the answers'
// log-probabilities. Pure, torch-free. Source of the formulas: TRL 1.16, DPOTrainer._compute_loss.
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
// orpo (ORPOTrainer), with m the mean log-probability of an answer's targets and
// o = m_c - m_r - log(1 - exp(m_c)) + log(1 - exp(m_r)): the mean loss of all targets of the chosen rows,
// prompts too, minus b times the mean of log g(o).
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
};

/// Of each.
std::vector<int64_t> targets_of(std::span<const Answer> answers);

struct Judged {
  double loss = 0;             ///< the mean over the pairs
  std::vector<double> slopes;  ///< of each answer: the derivative of `loss` by its logp
  /// rewards/chosen, rewards/rejected, rewards/accuracies, rewards/margins, logps/chosen,
  /// logps/rejected: means over the pairs. orpo: also nll_loss, log_odds_ratio, log_odds_chosen; its
  /// logps are means over an answer's targets.
  std::map<std::string, double> metrics;
  int64_t pairs = 0;  ///< that were judged
};

/// `answers`: chosen and rejected in turn; orpo: before them the chosen row's prompt. A pair that was
/// cut before its answers has no part in the means: neither answer has a target, under orpo one has
/// none. TRL leaves such rows out of the data. No pair left: everything is 0. An objective that
/// compares no pairs: DSJ_CHECK.
Judged judge(const dsconfig::Objective& objective, std::span<const Answer> answers);
/// The names of Judged::metrics, sorted.
const std::vector<std::string>& metric_names(const dsconfig::Objective& objective);

}  // namespace dsj::optim
