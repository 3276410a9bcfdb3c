#include "engine/train/answer/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace dsj::train {
namespace {

constexpr double kDropped = -std::numeric_limits<double>::infinity();

/// Keskar et al., "CTRL" (2019): makes seen tokens less likely.
void penalise(std::vector<double>& scores, std::span<const int32_t> seen, double penalty) {
  std::vector<int32_t> once(seen.begin(), seen.end());
  std::ranges::sort(once);
  once.erase(std::ranges::unique(once).begin(), once.end());
  for (const int32_t id : once) {
    double& score = scores[static_cast<size_t>(id)];
    score = score < 0 ? score * penalty : score / penalty;
  }
}

/// Drops tokens below the k-th best score; keeps those equal to it.
void keep_best(std::vector<double>& scores, int64_t k) {
  if (k >= std::ssize(scores)) return;
  std::vector<double> sorted = scores;
  std::ranges::nth_element(sorted, sorted.begin() + (k - 1), std::greater{});
  const double least = sorted[static_cast<size_t>(k - 1)];
  for (double& score : scores)
    if (score < least) score = kDropped;
}

std::vector<double> softmax(const std::vector<double>& scores) {
  const double top = std::ranges::max(scores);
  std::vector<double> out(scores.size());
  std::ranges::transform(scores, out.begin(), [&](double s) { return std::exp(s - top); });
  const double sum = std::reduce(out.begin(), out.end());
  for (double& p : out) p /= sum;
  return out;
}

/// Holtzman et al. (2020): drops the least likely tokens whose probabilities sum to at most 1 - p,
/// but never the best one.
void keep_nucleus(std::vector<double>& scores, double p) {
  const std::vector<double> probabilities = softmax(scores);
  std::vector<size_t> order;
  for (size_t i = 0; i < scores.size(); ++i)
    if (scores[i] != kDropped) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return scores[i]; });
  double below = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    below += probabilities[order[i]];
    if (below > 1 - p) break;
    scores[order[i]] = kDropped;
  }
}

/// Drops tokens below this share of the best one's probability.
void keep_above_share(std::vector<double>& scores, double share) {
  const double least = std::ranges::max(scores) + std::log(share);
  for (double& score : scores)
    if (score < least) score = kDropped;
}

}  // namespace

std::vector<double> token_probabilities(const Sampling& sampling, std::span<const float> logits,
                                        std::span<const int32_t> seen) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (sampling.repetition_penalty != 1) penalise(scores, seen, sampling.repetition_penalty);
  if (sampling.temperature == 0) {
    std::vector<double> best(scores.size(), 0);
    best[static_cast<size_t>(std::ranges::max_element(scores) - scores.begin())] = 1;
    return best;
  }
  for (double& score : scores) score /= sampling.temperature;
  if (sampling.top_k > 0) keep_best(scores, sampling.top_k);
  if (sampling.top_p < 1) keep_nucleus(scores, sampling.top_p);
  if (sampling.min_p > 0) keep_above_share(scores, sampling.min_p);
  return softmax(scores);
}

int32_t draw_token(std::span<const double> probabilities, double uniform) {
  double below = 0;
  size_t last = 0;  // by rounding, `uniform` may be above the sum
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] <= 0) continue;
    last = i;
    below += probabilities[i];
    if (uniform < below) break;
  }
  return static_cast<int32_t>(last);
}

double token_uniform(uint64_t seed, uint64_t stream, uint64_t position) {
  // SplitMix64's finisher (Steele, Lea, Flood 2014), once per word.
  uint64_t x = 0;
  for (const uint64_t word : {seed, stream, position}) {
    x += word + 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    x ^= x >> 31;
  }
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

int32_t choose_token(const Sampling& sampling, std::span<const float> logits,
                     std::span<const int32_t> prompt, std::span<const int32_t> completion,
                     uint64_t stream) {
  const bool penalises = sampling.repetition_penalty != 1;
  if (sampling.temperature == 0 && !penalises)  // as token_probabilities(), without its copy
    return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  std::vector<int32_t> seen;
  if (penalises) {
    seen.assign(prompt.begin(), prompt.end());
    seen.insert(seen.end(), completion.begin(), completion.end());
  }
  return draw_token(token_probabilities(sampling, logits, seen),
                    token_uniform(sampling.seed, stream, completion.size()));
}

}  // namespace dsj::train
