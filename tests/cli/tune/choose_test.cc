// The order of a search and its end, on simulated machines: a function gives the speed of each
// configuration.
#include "cli/tune/choose.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

namespace dsj::tune {
namespace {

constexpr double kParameters = 24e6;

Option option(int stage, int64_t micro) {
  const double tokens = 2 * 256.0 * static_cast<double>(micro);
  return {.candidate = {.stage = stage, .micro_batch = micro},
          .counts = {.products = tokens / 2 * kParameters,
                     .weights = kParameters,
                     .wire_bytes = kParameters * (stage == 3 ? 12 : 8),
                     .actions = 16.0 * (stage == 3 ? 2 : 1)},
          .tokens = tokens};
}

std::vector<Group> grid(const std::vector<int64_t>& sizes) {
  std::vector<Group> groups;
  for (int stage = 0; stage < 4; ++stage) {
    groups.emplace_back();
    for (const int64_t size : sizes) groups.back().push_back(option(stage, size));
  }
  return groups;
}

using Machine = std::function<double(const Option&)>;  ///< seconds of a step; 0: it fails

Outcome measured(const Option& what, const Machine& machine) {
  const double seconds = machine(what);
  if (seconds == 0) return {.option = what};
  return {.option = what,
          .ran = true,
          .step_seconds = seconds,
          .tokens_per_second = what.tokens / seconds};
}

struct Search {
  std::vector<Outcome> tried;
  std::string because;
};

Search searched(const std::vector<Group>& groups, const Rules& rules, const Machine& machine,
                Option given = option(2, 4)) {
  Search result;
  given.candidate.given = true;
  result.tried.push_back(measured(given, machine));
  for (;;) {
    const Next next = choose(groups, rules, result.tried);
    if (!next.option) {
      result.because = next.because;
      return result;
    }
    result.tried.push_back(measured(*next.option, machine));
    if (result.tried.size() > 100) return result;
  }
}

/// Time for products, for weights per micro-step, and for bytes on the wire.
double slow_wire(const Option& what) {
  return what.counts.products / 2e10 + what.counts.weights / 2e8 + what.counts.wire_bytes / 5e8 +
         what.counts.actions / 1e4;
}

double best_of_all(const std::vector<Group>& groups, const Machine& machine, Metric metric) {
  double best = 0;
  for (const Group& group : groups)
    for (const Option& one : group) best = std::max(best, score_of(measured(one, machine), metric));
  return best;
}

TEST(Choose, EverythingTriesTheWholeGridOnce) {
  const auto groups = grid({2, 4, 8, 16});
  const Search all =
      searched(groups, {.early_stopping = 1, .trials_max = 2, .everything = true}, slow_wire);
  EXPECT_EQ(all.tried.size(), 16u) << "the file as given is one of them";
  std::set<std::string> names;
  for (const Outcome& one : all.tried) {
    Candidate candidate = one.option.candidate;
    candidate.given = false;
    names.insert(name_of(candidate));
  }
  EXPECT_EQ(names.size(), 16u);
}

/// On three machines: as fast as the best of the grid, with half the trials.
TEST(Choose, TheModelFindsTheBestOfTheGridWithHalfTheTrials) {
  const auto groups = grid({2, 4, 8, 16});
  const Machine saturates = [](const Option& what) {
    return what.counts.products / 2e10 + 0.2 + what.counts.wire_bytes / 1e9 +
           (what.candidate.micro_batch > 8 ? what.counts.products / 1.9e10 : 0);
  };
  const Machine dear_gathers = [](const Option& what) {
    return what.counts.products / 2e10 + what.counts.actions / 50;
  };
  for (const Machine& machine : {Machine(slow_wire), saturates, dear_gathers}) {
    const Search found = searched(groups, {.order = Order::Model, .early_stopping = 3}, machine);
    EXPECT_LE(found.tried.size(), 8u);
    EXPECT_DOUBLE_EQ(score_of(*best_of(found.tried, Metric::Throughput), Metric::Throughput),
                     best_of_all(groups, machine, Metric::Throughput));
  }
}

TEST(Choose, TheGridStartsAtTheFileAndSkipsUselessSizes) {
  const auto groups = grid({2, 4, 8, 16, 32});
  const Machine flat = [](const Option& what) {  // from 8 on, size gains nothing
    return what.tokens / std::min<double>(8, static_cast<double>(what.candidate.micro_batch));
  };
  const Search found = searched(groups, {.early_stopping = 100}, flat);
  int64_t largest = 0;
  for (const Outcome& one : found.tried)
    largest = std::max(largest, one.option.candidate.micro_batch);
  EXPECT_EQ(largest, 16) << "16 gained less than 5 % over 8, so nobody asks for 32";
  EXPECT_EQ(name_of(found.tried[1].option.candidate), "z0_gas1_tmbspg2");
  EXPECT_EQ(name_of(found.tried[2].option.candidate), "z0_gas1_tmbspg4");
  EXPECT_NE(found.because.find("nothing is left"), std::string::npos);
}

TEST(Choose, ALargerSizeThanTwiceTheLargestThatRanIsNotTried) {
  const auto groups = grid({2, 4, 8, 16, 32, 64});
  const Search found = searched(groups, {.order = Order::Model, .early_stopping = 100}, slow_wire);
  int64_t largest = 4;
  for (const Outcome& one : found.tried) {
    EXPECT_LE(one.option.candidate.micro_batch, 2 * largest);
    largest = std::max(largest, one.option.candidate.micro_batch);
  }
}

TEST(Choose, AFailureEndsItsGroupButNotTheSearch) {
  const auto groups = grid({2, 4, 8});
  const Machine fails = [](const Option& what) {
    return what.candidate.stage == 0 && what.candidate.micro_batch >= 4 ? 0 : slow_wire(what);
  };
  const Search found = searched(groups, {.early_stopping = 100}, fails);
  int stage0 = 0, others = 0;
  for (const Outcome& one : found.tried) ++(one.option.candidate.stage == 0 ? stage0 : others);
  EXPECT_EQ(stage0, 2) << "2 runs, 4 fails, 8 is not tried";
  EXPECT_EQ(others, 9);
  const Search nothing = searched(groups, {}, [](const Option&) { return 0.0; });
  EXPECT_EQ(best_of(nothing.tried, Metric::Throughput), nullptr);
  EXPECT_LE(nothing.tried.size(), 6u);
}

TEST(Choose, TheSearchEndsByNumberOfTrialsOrWithoutGain) {
  const auto groups = grid({2, 4, 8, 16});
  const Search few = searched(groups, {.early_stopping = 100, .trials_max = 3}, slow_wire);
  EXPECT_EQ(few.tried.size(), 3u);
  EXPECT_NE(few.because.find("tuner_num_trials"), std::string::npos);
  // The given file is the best.
  const Machine best_first = [](const Option& what) {
    return what.candidate.given ? what.tokens : 2 * what.tokens;
  };
  const Search early = searched(groups, {.early_stopping = 4}, best_first);
  EXPECT_EQ(early.tried.size(), 5u);
  EXPECT_NE(early.because.find("no better"), std::string::npos);
}

TEST(Choose, TheRandomOrderDependsOnTheSeedOnly) {
  const auto groups = grid({2, 4, 8});
  const auto names = [&](uint64_t seed) {
    std::vector<std::string> all;
    for (const Outcome& one :
         searched(groups, {.order = Order::Random, .early_stopping = 100, .seed = seed}, slow_wire)
             .tried)
      all.push_back(name_of(one.option.candidate));
    return all;
  };
  EXPECT_EQ(names(1), names(1));
  EXPECT_NE(names(1), names(2));
  const auto once = names(1);
  EXPECT_EQ(std::set<std::string>(once.begin(), once.end()).size(), once.size());
}

TEST(Choose, TheMetricDecidesWhatIsBetter) {
  const auto groups = grid({2, 4, 8});
  for (const auto& [metric, size] : {std::pair{Metric::Throughput, 8}, {Metric::Latency, 2}}) {
    const Search found = searched(
        groups, {.metric = metric, .order = Order::Model, .early_stopping = 100}, slow_wire);
    EXPECT_EQ(best_of(found.tried, metric)->option.candidate.micro_batch, size);
  }
  const Outcome one = measured(option(1, 4), slow_wire);
  EXPECT_EQ(score_of(one, Metric::Flops), score_of(one, Metric::Throughput));
  EXPECT_DOUBLE_EQ(score_of(one, Metric::Latency), 1 / one.step_seconds);
}

/// A search that was stopped at any point continues as if it had not been.
TEST(Choose, TheNextTrialDependsOnTheOutcomesOnly) {
  const auto groups = grid({2, 4, 8});
  const Rules rules{.order = Order::Model};
  const Search whole = searched(groups, rules, slow_wire);
  for (size_t count = 1; count < whole.tried.size(); ++count) {
    const auto begun = std::span(whole.tried).first(count);
    const Next next = choose(groups, rules, begun);
    ASSERT_NE(next.option, nullptr);
    EXPECT_EQ(name_of(next.option->candidate), name_of(whole.tried[count].option.candidate));
  }
}

}  // namespace
}  // namespace dsj::tune
