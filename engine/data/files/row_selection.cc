#include "engine/data/files/row_selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/path_list.h"
#include "common/text.h"
#include "engine/data/files/numpy_random.h"

namespace dsj::data {
namespace {

using Numbers = std::vector<int64_t>;

/// The number of each data set's first row; rows are numbered across all sets.
Numbers offsets_of(std::span<const int64_t> rows) {
  Numbers offsets(rows.size());
  std::exclusive_scan(rows.begin(), rows.end(), offsets.begin(), int64_t{0});
  return offsets;
}

Numbers in_turns(std::span<const int64_t> kept, const Numbers& offsets, bool over) {
  const int64_t rounds = over ? std::ranges::max(kept) : std::ranges::min(kept);
  Numbers order;
  order.reserve(static_cast<size_t>(rounds) * kept.size());
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t set = 0; set < kept.size(); ++set)
      order.push_back(offsets[set] + round % kept[set]);
  }
  return order;
}

/// Draws sets until one is exhausted, or all are (over). An exhausted set starts again.
Numbers by_weight(std::span<const int64_t> kept, const Numbers& offsets,
                  const RowSelection& selection) {
  NumpyRandom random(selection.seed);
  const WeightedChoice choice(selection.weights);
  Numbers order, taken(kept.size());
  const size_t enough = selection.mix == Mix::InterleaveOver ? kept.size() : 1;
  for (size_t ended = 0; ended < enough;) {
    const size_t set = choice.draw(random);
    order.push_back(offsets[set] + taken[set] % kept[set]);
    ended += ++taken[set] == kept[set];
  }
  return order;
}

/// Moves the rows that train_test_split would hold out to the front; both parts keep their order.
void hold_out(const RowSelection& selection, Numbers& order) {
  const auto count = static_cast<int64_t>(order.size());
  const int64_t held = std::min(held_out_count(selection.held_out, count), count);
  const Numbers drawn = NumpyRandom(selection.seed).permutation(count);
  std::vector<bool> is_held(order.size());
  for (int64_t i = 0; i < held; ++i)
    is_held[static_cast<size_t>(drawn[static_cast<size_t>(i)])] = true;
  Numbers parts;
  parts.reserve(order.size());
  for (const bool first : {true, false}) {
    for (size_t i = 0; i < order.size(); ++i)
      if (is_held[i] == first) parts.push_back(order[i]);
  }
  order = std::move(parts);
}

Status check_weights(const RowSelection& selection, std::span<const int64_t> rows) {
  const auto& weights = selection.weights;
  if (!weights.empty() && weights.size() != rows.size())
    return bad_input("names " + std::to_string(weights.size()) + " weights for " +
                         std::to_string(rows.size()) + " data sets",
                     "training.datasetWeights", "each path, or name of a data set, needs one");
  if (selection.mix == Mix::InterleaveOver && std::ranges::count(weights, 0) > 0)
    return bad_input(
        "a data set of weight 0 never ends, and interleave_over runs until every set has ended",
        "training.datasetWeights", "leave the data set out");
  return {};
}

}  // namespace

Result<RowSelection> selection_of(int64_t max_samples, std::string_view mix,
                                  std::string_view weights, double held_out, uint64_t seed) {
  RowSelection selection{.max_samples = max_samples, .held_out = held_out, .seed = seed};
  selection.mix = mix == "interleave_under"  ? Mix::InterleaveUnder
                  : mix == "interleave_over" ? Mix::InterleaveOver
                                             : Mix::Concat;
  for (const std::string& word : split_commas(weights)) {
    const auto weight = text::parse_double(word);
    if (!weight || !std::isfinite(*weight) || *weight < 0)
      return bad_input("\"" + word + "\" is not a weight", "training.datasetWeights",
                       "expected numbers of at least 0, separated by commas");
    selection.weights.push_back(*weight);
  }
  if (weights.empty()) return selection;
  if (selection.mix == Mix::Concat)
    return bad_input("applies to interleaved data sets only, and mixStrategy is concat",
                     "training.datasetWeights",
                     "write mixStrategy interleave_under or interleave_over");
  if (std::ranges::all_of(selection.weights, [](double weight) { return weight == 0; }))
    return bad_input("no weight is more than 0", "training.datasetWeights");
  return selection;
}

std::string selection_text(const RowSelection& selection) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (selection.max_samples > 0) add("maxSamples " + std::to_string(selection.max_samples));
  if (selection.mix == Mix::InterleaveUnder) add("mixStrategy interleave_under");
  if (selection.mix == Mix::InterleaveOver) add("mixStrategy interleave_over");
  for (const double weight : selection.weights) add("weight " + text::number(weight));
  if (selection.held_out > 0) add("valSize " + text::number(selection.held_out));
  if (selection.held_out > 0 || !selection.weights.empty())
    add("seed " + std::to_string(selection.seed));
  return text;
}

int64_t held_out_count(double held_out, int64_t rows) {
  if (held_out <= 0) return 0;
  const double count = held_out < 1 ? static_cast<double>(rows) * held_out : held_out;
  return static_cast<int64_t>(std::min(1e15, std::ceil(count)));
}

Result<Numbers> selected_rows(const RowSelection& selection, std::span<const int64_t> rows) {
  DSJ_TRY_STATUS(check_weights(selection, rows));
  Numbers kept(rows.begin(), rows.end());
  if (selection.max_samples > 0)
    for (int64_t& count : kept) count = std::min(count, selection.max_samples);
  const bool all = std::ranges::equal(kept, rows);
  const bool interleaves = selection.mix != Mix::Concat && rows.size() > 1;
  if (all && !interleaves && selection.held_out <= 0) return Numbers();
  const Numbers offsets = offsets_of(rows);
  Numbers order;
  if (interleaves) {
    order = selection.weights.empty()
                ? in_turns(kept, offsets, selection.mix == Mix::InterleaveOver)
                : by_weight(kept, offsets, selection);
  } else {
    for (size_t set = 0; set < kept.size(); ++set)
      for (int64_t row = 0; row < kept[set]; ++row) order.push_back(offsets[set] + row);
  }
  if (selection.held_out > 0) hold_out(selection, order);
  return order;
}

}  // namespace dsj::data
