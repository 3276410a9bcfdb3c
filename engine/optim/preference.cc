#include "engine/optim/preference.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"

namespace dsj::optim {
namespace {

double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}
double log_sigmoid(double x) {
  return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x)));
}
/// The derivative of sigmoid().
double bump(double x) {
  return sigmoid(x) * sigmoid(-x);
}

/// A pair's loss, and its derivatives by the two log-probabilities.
struct PairValue {
  double loss = 0, chosen = 0, rejected = 0;
};

PairValue pair_value(const dsconfig::Objective& objective, const Answer& c, const Answer& r) {
  const double b = objective.beta, e = objective.label_smoothing;
  const double sc = c.logp - c.reference, sr = r.logp - r.reference, h = b * (sc - sr);
  const double nc = static_cast<double>(std::max<int64_t>(1, c.tokens));
  const double nr = static_cast<double>(std::max<int64_t>(1, r.tokens));
  const auto of_h = [b](double loss, double slope) {
    return PairValue{loss, b * slope, -b * slope};
  };
  using enum dsconfig::PairLoss;
  switch (objective.loss) {
    case Sigmoid:
      return of_h(-(1 - e) * log_sigmoid(h) - e * log_sigmoid(-h),
                  -(1 - e) * sigmoid(-h) + e * sigmoid(h));
    case Robust:
      return of_h((-(1 - e) * log_sigmoid(h) + e * log_sigmoid(-h)) / (1 - 2 * e),
                  (-(1 - e) * sigmoid(-h) - e * sigmoid(h)) / (1 - 2 * e));
    case Hinge:
      return of_h(std::max(0.0, 1 - h), h < 1 ? -1 : 0);
    case Ipo: {
      const double d = sc / nc - sr / nr - 1 / (2 * b);
      return {d * d, 2 * d / nc, -2 * d / nr};
    }
    case ExoPair: {
      const double win = log_sigmoid(h) - std::log1p(-e), lose = log_sigmoid(-h) - std::log(e);
      return of_h(sigmoid(h) * win + sigmoid(-h) * lose, bump(h) * (win - lose));
    }
    case NcaPair:
      return {-log_sigmoid(b * sc) - log_sigmoid(-b * sc) / 2 - log_sigmoid(-b * sr) / 2,
              b * (sigmoid(b * sc) / 2 - sigmoid(-b * sc)), b * sigmoid(b * sr) / 2};
    case BcoPair:
      return {-log_sigmoid(b * sc) - log_sigmoid(-b * sr), -b * sigmoid(-b * sc),
              b * sigmoid(b * sr)};
    case SppoHard: {
      const double dc = sc - 1 / (2 * b), dr = sr + 1 / (2 * b);
      return {dc * dc + dr * dr, 2 * dc, 2 * dr};
    }
    case ApoZero:
      return {1 - sigmoid(b * sc) + sigmoid(b * sr), -b * bump(b * sc), b * bump(b * sr)};
    case ApoDown:
      return {sigmoid(b * sc) + 1 - sigmoid(h), b * bump(b * sc) - b * bump(h), b * bump(h)};
    case SigmoidNorm: {
      const double d = b * (sc / nc - sr / nr), slope = -b * sigmoid(-d);
      return {-log_sigmoid(d), slope / nc, -slope / nr};
    }
  }
  return {};
}

}  // namespace

std::vector<int64_t> targets_of(std::span<const Answer> answers) {
  std::vector<int64_t> targets;
  for (const Answer& answer : answers) targets.push_back(answer.targets);
  return targets;
}

const std::vector<std::string>& metric_names(const dsconfig::Objective& objective) {
  DSJ_CHECK(objective.pairs());
  static const std::vector<std::string> dpo = {"logps/chosen",       "logps/rejected",
                                               "rewards/accuracies", "rewards/chosen",
                                               "rewards/margins",    "rewards/rejected"};
  static const std::vector<std::string> orpo = [] {
    std::vector<std::string> names = dpo;
    names.insert(names.begin(), {"log_odds_chosen", "log_odds_ratio"});
    names.insert(std::ranges::find(names, "rewards/accuracies"), "nll_loss");
    return names;
  }();
  return objective.kind == dsconfig::Objective::Kind::Orpo ? orpo : dpo;
}

namespace {

void add_rewards(double share, double chosen, double rejected, Judged& judged) {
  judged.metrics["rewards/chosen"] += share * chosen;
  judged.metrics["rewards/rejected"] += share * rejected;
  judged.metrics["rewards/accuracies"] += chosen > rejected ? share : 0;
  judged.metrics["rewards/margins"] += share * (chosen - rejected);
}

/// log(1 - exp(x)), x < 0.
double log_one_minus_exp(double x) {
  return x < -0.6931471805599453 ? std::log1p(-std::exp(x)) : std::log(-std::expm1(x));
}

Judged judge_odds(const dsconfig::Objective& objective, std::span<const Answer> parts,
                  Judged judged) {
  const auto is_left = [&](size_t prompt) {
    return parts[prompt + 1].targets > 0 && parts[prompt + 2].targets > 0;
  };
  double targets = 0;
  for (size_t i = 0; i < parts.size(); i += 3) {
    if (!is_left(i)) continue;
    ++judged.pairs;
    targets += static_cast<double>(parts[i].targets + parts[i + 1].targets);
  }
  if (judged.pairs == 0) return judged;
  const double share = 1 / static_cast<double>(judged.pairs), b = objective.beta;
  for (size_t i = 0; i < parts.size(); i += 3) {
    if (!is_left(i)) continue;
    const Answer &c = parts[i + 1], &r = parts[i + 2];
    const auto nc = static_cast<double>(c.targets), nr = static_cast<double>(r.targets);
    const double mc = c.logp / nc, mr = r.logp / nr;
    const double odds = mc - mr - log_one_minus_exp(mc) + log_one_minus_exp(mr);
    const double nll = -(parts[i].logp + c.logp) / targets, ratio = log_sigmoid(odds);
    const double pull = share * b * sigmoid(-odds);
    judged.loss += nll - share * b * ratio;
    judged.slopes[i] = -1 / targets;
    judged.slopes[i + 1] = -1 / targets + pull / std::expm1(mc) / nc;
    judged.slopes[i + 2] = -pull / std::expm1(mr) / nr;
    add_rewards(share, b * mc, b * mr, judged);
    judged.metrics["logps/chosen"] += share * mc;
    judged.metrics["logps/rejected"] += share * mr;
    judged.metrics["nll_loss"] += nll;
    judged.metrics["log_odds_ratio"] += share * ratio;
    judged.metrics["log_odds_chosen"] += share * odds;
  }
  return judged;
}

Judged judge_pairs(const dsconfig::Objective& objective, std::span<const Answer> answers,
                   Judged judged) {
  const auto is_left = [&](size_t chosen) {
    return answers[chosen].targets > 0 || answers[chosen + 1].targets > 0;
  };
  for (size_t i = 0; i < answers.size(); i += 2) judged.pairs += is_left(i);
  if (judged.pairs == 0) return judged;
  const double share = 1 / static_cast<double>(judged.pairs);
  for (size_t i = 0; i < answers.size(); i += 2) {
    if (!is_left(i)) continue;
    const Answer &c = answers[i], &r = answers[i + 1];
    const PairValue value = pair_value(objective, c, r);
    judged.loss += share * value.loss;
    judged.slopes[i] = share * value.chosen;
    judged.slopes[i + 1] = share * value.rejected;
    add_rewards(share, objective.beta * (c.logp - c.reference),
                objective.beta * (r.logp - r.reference), judged);
    judged.metrics["logps/chosen"] += share * c.logp;
    judged.metrics["logps/rejected"] += share * r.logp;
  }
  return judged;
}

}  // namespace

Judged judge(const dsconfig::Objective& objective, std::span<const Answer> answers) {
  Judged judged;
  judged.slopes.assign(answers.size(), 0);
  for (const std::string& name : metric_names(objective)) judged.metrics[name] = 0;
  if (objective.kind == dsconfig::Objective::Kind::Orpo) {
    DSJ_CHECK(answers.size() % 3 == 0);
    return judge_odds(objective, answers, std::move(judged));
  }
  DSJ_CHECK(answers.size() % 2 == 0);
  return judge_pairs(objective, answers, std::move(judged));
}

}  // namespace dsj::optim
