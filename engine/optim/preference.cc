#include "engine/optim/preference.h"

#include <algorithm>
#include <cmath>
#include <string_view>

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

const std::vector<std::string>& tally_names(const dsconfig::Objective& objective) {
  using Kind = dsconfig::Objective::Kind;
  DSJ_CHECK(objective.judges());
  static const std::vector<std::string> dpo = {
      "logps/chosen", "logps/rejected", "rewards/accuracies", "rewards/chosen", "rewards/rejected"};
  static const std::vector<std::string> orpo = {
      "log_odds_chosen", "log_odds_ratio",     "logps/chosen",   "logps/rejected",
      "nll_loss",        "rewards/accuracies", "rewards/chosen", "rewards/rejected"};
  static const std::vector<std::string> kto = {"kl", "logps/chosen", "logps/rejected",
                                               "rewards/chosen", "rewards/rejected"};
  static const std::vector<std::string> reward = {"accuracy", "margin", "max_reward", "mean_reward",
                                                  "min_reward"};
  if (objective.scores()) return reward;
  if (objective.kind == Kind::Orpo) return orpo;
  return objective.kind == Kind::Dpo ? dpo : kto;
}

int extreme_of(const std::string& name) {
  return name == "min_reward" ? -1 : name == "max_reward" ? 1 : 0;
}

std::map<std::string, double> metrics_of(const dsconfig::Objective& objective,
                                         std::span<const Tally> tallies) {
  const auto& names = tally_names(objective);
  DSJ_CHECK(tallies.size() % names.size() == 0);
  std::map<std::string, Tally> means;
  const auto count = [&](const std::string& name, double value) {
    means[name].sum += value;
    ++means[name].count;
  };
  for (size_t first = 0; first < tallies.size(); first += names.size()) {
    std::map<std::string, double> step;
    for (size_t i = 0; i < names.size(); ++i) {
      const Tally& one = tallies[first + i];
      if (one.count > 0) step[names[i]] = one.sum / one.count;
    }
    for (const auto& [name, value] : step) count(name, value);
    const auto chosen = step.find("rewards/chosen"), rejected = step.find("rewards/rejected");
    if (chosen != step.end() && rejected != step.end())
      count("rewards/margins", chosen->second - rejected->second);
  }
  std::map<std::string, double> metrics;
  for (const auto& [name, mean] : means) metrics[name] = mean.sum / mean.count;
  return metrics;
}

Tally moved(std::span<const Answer> answers) {
  Tally tally;
  for (const Answer& answer : answers) {
    if (answer.targets == 0) continue;
    tally.sum += answer.logp - answer.reference;
    ++tally.count;
  }
  return tally;
}

double kl_of(const Tally& means) {
  return means.count > 0 ? std::max(0.0, means.sum / means.count) : 0;
}

namespace {

/// Adds to Judged::tallies by name.
class Tallies {
 public:
  Tallies(const dsconfig::Objective& objective, std::vector<Tally>& to)
      : names_(tally_names(objective)), to_(to) {
    to_.assign(names_.size(), {});
  }
  void add(std::string_view name, double value) {
    const auto found = std::ranges::find(names_, name);
    DSJ_CHECK(found != names_.end());
    Tally& tally = to_[static_cast<size_t>(found - names_.begin())];
    if (const int extreme = extreme_of(*found); extreme != 0) {
      if (tally.count == 0 || extreme * value > extreme * tally.sum) tally.sum = value;
      tally.count = 1;
      return;
    }
    tally.sum += value;
    ++tally.count;
  }
  void add_pair(double chosen, double rejected, double chosen_logp, double rejected_logp) {
    add("rewards/chosen", chosen);
    add("rewards/rejected", rejected);
    add("rewards/accuracies", chosen > rejected ? 1 : 0);
    add("logps/chosen", chosen_logp);
    add("logps/rejected", rejected_logp);
  }

 private:
  const std::vector<std::string>& names_;
  std::vector<Tally>& to_;
};

/// log(1 - exp(x)), x < 0.
double log_one_minus_exp(double x) {
  return x < -0.6931471805599453 ? std::log1p(-std::exp(x)) : std::log(-std::expm1(x));
}

void judge_odds(const dsconfig::Objective& objective, std::span<const Answer> parts,
                Tallies tallies, Judged& judged) {
  const auto is_left = [&](size_t prompt) {
    return parts[prompt + 1].targets > 0 && parts[prompt + 2].targets > 0;
  };
  double targets = 0;
  for (size_t i = 0; i < parts.size(); i += 3) {
    if (!is_left(i)) continue;
    ++judged.judged;
    targets += static_cast<double>(parts[i].targets + parts[i + 1].targets);
  }
  if (judged.judged == 0) return;
  const double pairs = static_cast<double>(judged.judged), share = 1 / pairs;
  const double b = objective.beta;
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
    tallies.add_pair(b * mc, b * mr, mc, mr);
    tallies.add("nll_loss", pairs * nll);  // a mean over targets, not over pairs
    tallies.add("log_odds_ratio", ratio);
    tallies.add("log_odds_chosen", odds);
  }
}

void judge_pairs(const dsconfig::Objective& objective, std::span<const Answer> answers,
                 Tallies tallies, Judged& judged) {
  const auto is_left = [&](size_t chosen) {
    return answers[chosen].targets > 0 || answers[chosen + 1].targets > 0;
  };
  for (size_t i = 0; i < answers.size(); i += 2) judged.judged += is_left(i);
  if (judged.judged == 0) return;
  const double share = 1 / static_cast<double>(judged.judged);
  for (size_t i = 0; i < answers.size(); i += 2) {
    if (!is_left(i)) continue;
    const Answer &c = answers[i], &r = answers[i + 1];
    const PairValue value = pair_value(objective, c, r);
    judged.loss += share * value.loss;
    judged.slopes[i] = share * value.chosen;
    judged.slopes[i + 1] = share * value.rejected;
    tallies.add_pair(objective.beta * (c.logp - c.reference),
                     objective.beta * (r.logp - r.reference), c.logp, r.logp);
  }
  double targets = 0;
  for (size_t i = 0; i < answers.size(); i += 2) targets += static_cast<double>(answers[i].targets);
  if (objective.sft_weight == 0 || targets == 0) return;
  for (size_t i = 0; i < answers.size(); i += 2) {
    if (answers[i].targets == 0) continue;
    judged.loss -= objective.sft_weight * answers[i].logp / targets;
    judged.slopes[i] -= objective.sft_weight / targets;
  }
}

void judge_scores(const dsconfig::Objective& objective, std::span<const Answer> answers,
                  Tallies tallies, Judged& judged) {
  const auto is_left = [&](size_t i) {
    return answers[i].targets > 0 && answers[i + 1].targets > 0;
  };
  for (size_t i = 0; i < answers.size(); i += 2) judged.judged += is_left(i);
  if (judged.judged == 0) return;
  const double share = 1 / static_cast<double>(judged.judged), center = objective.center_rewards;
  for (size_t i = 0; i < answers.size(); i += 2) {
    if (!is_left(i)) continue;
    const double chosen = answers[i].logp, rejected = answers[i + 1].logp;
    const double ahead = chosen - rejected - answers[i].margin, sum = chosen + rejected;
    judged.loss += share * (center * sum * sum - log_sigmoid(ahead));
    judged.slopes[i] = share * (2 * center * sum - sigmoid(-ahead));
    judged.slopes[i + 1] = share * (2 * center * sum + sigmoid(-ahead));
    tallies.add("accuracy", chosen > rejected ? 1 : 0);
    tallies.add("margin", chosen - rejected);
    for (const double score : {chosen, rejected})
      for (const char* name : {"min_reward", "mean_reward", "max_reward"}) tallies.add(name, score);
  }
}

void judge_marked(const dsconfig::Objective& objective, std::span<const Answer> answers, double kl,
                  Tallies tallies, Judged& judged) {
  tallies.add("kl", kl);
  for (const Answer& answer : answers) judged.judged += answer.targets > 0;
  if (judged.judged == 0) return;
  const double share = 1 / static_cast<double>(judged.judged), b = objective.beta;
  for (size_t i = 0; i < answers.size(); ++i) {
    const Answer& answer = answers[i];
    if (answer.targets == 0) continue;
    const double weight =
        share * (answer.good ? objective.desirable_weight : objective.undesirable_weight);
    const double ratio = answer.logp - answer.reference, sign = answer.good ? 1 : -1;
    const double h = sign * b * (ratio - kl);
    judged.loss += weight * sigmoid(-h);
    judged.slopes[i] = -weight * sign * b * bump(h);
    tallies.add(answer.good ? "rewards/chosen" : "rewards/rejected", b * ratio);
    tallies.add(answer.good ? "logps/chosen" : "logps/rejected", answer.logp);
  }
}

}  // namespace

Judged judge(const dsconfig::Objective& objective, std::span<const Answer> answers, double kl) {
  using Kind = dsconfig::Objective::Kind;
  Judged judged;
  judged.slopes.assign(answers.size(), 0);
  Tallies tallies(objective, judged.tallies);
  switch (objective.kind) {
    case Kind::Kto:
      judge_marked(objective, answers, kl, tallies, judged);
      break;
    case Kind::Reward:
      DSJ_CHECK(answers.size() % 2 == 0);
      judge_scores(objective, answers, tallies, judged);
      break;
    case Kind::Orpo:
      DSJ_CHECK(answers.size() % 3 == 0);
      judge_odds(objective, answers, tallies, judged);
      break;
    default:
      DSJ_CHECK(answers.size() % 2 == 0);
      judge_pairs(objective, answers, tallies, judged);
  }
  return judged;
}

}  // namespace dsj::optim
