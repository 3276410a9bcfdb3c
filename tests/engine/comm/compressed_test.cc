// The compressed mean on every backend against a slow form of the same arithmetic, and its bytes.
#include "engine/comm/compressed.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/comm/backend_cases.h"
#include "tests/engine/comm/ranks.h"
#include "tests/engine/support/one_bit_oracle.h"

namespace dsj::comm {
namespace {

using namespace std::chrono_literals;
using testing_support::backend_cases;
using testing_support::BackendCase;
using testing_support::kBackends;
using testing_support::name_of_case;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;
using Oracle = dsj::testing_support::CompressedOracle;
using Numbers = Oracle::Numbers;

/// What rank `rank` contributes in round `round`: the same on all ranks that ask.
at::Tensor contribution(int round, int rank, std::int64_t n) {
  at::manual_seed(static_cast<std::uint64_t>(1000 * round + rank + 1));
  at::Tensor x = at::randn({n});
  x.narrow(0, n / 2, n / 4).zero_();  // zeros have a sign, too
  return x;
}

void near(const at::Tensor& found, const float* expected, const std::string& what) {
  for (std::int64_t i = 0; i < found.numel(); ++i) {
    const double is = found[i].item<double>(), wanted = expected[i];
    require(std::abs(is - wanted) <= 2e-6 * std::max(1.0, std::abs(wanted)),
            what + " #" + std::to_string(i) + ": " + std::to_string(is) + " instead of " +
                std::to_string(wanted));
  }
}

class Compressed : public ::testing::TestWithParam<BackendCase> {};

TEST_P(Compressed, EqualsTheSlowFormForSixRounds) {
  const auto [backend, ranks] = GetParam();
  const auto texts = run_ranks(ranks, [&](const Seat& seat) {
    const auto group = seat.join(backend, 300s);
    const int world = seat.world;
    const std::int64_t sizes[] = {5, 100, 1000}, chunks[] = {8, 72, 504};
    std::vector<Oracle> oracles;
    std::vector<ErrorFeedback> vectors;
    for (const std::int64_t chunk : chunks) {
      oracles.emplace_back(world, world * chunk);
      vectors.push_back({at::zeros({world * chunk}), at::zeros({chunk})});
    }
    for (int round = 0; round < 6; ++round) {
      std::vector<Numbers> expected;
      for (std::size_t v = 0; v < std::size(sizes); ++v) {
        std::vector<at::Tensor> xs;
        for (int rank = 0; rank < world; ++rank)
          xs.push_back(contribution(round, rank, std::min(sizes[v], world * chunks[v])));
        vectors[v].worker.narrow(0, 0, xs[0].numel()).add_(xs[static_cast<std::size_t>(seat.rank)]);
        expected.push_back(oracles[v].mean(xs));
      }
      const SignMeans means = compressed_mean(*group, vectors, {Traffic::Gradients, "momentum"});
      for (std::size_t v = 0; v < std::size(sizes); ++v) {
        const std::string what = "round " + std::to_string(round) + " vector " + std::to_string(v);
        const at::Tensor out = at::empty({world * chunks[v]});
        means.read(v, 0, out);
        near(out, expected[v].data(), what + " mean");
        const at::Tensor middle = at::empty({chunks[v] + 3});  // over the border of two owners
        means.read(v, 2, middle);
        require(at::equal(middle, out.narrow(0, 2, chunks[v] + 3)), what + " a part");
        near(vectors[v].worker, oracles[v].worker(seat.rank).data(), what + " worker");
        near(vectors[v].server, oracles[v].server().data() + seat.rank * chunks[v],
             what + " server");
        at::Tensor first = out.clone();
        group->broadcast(first, 0, {})->wait();
        require(at::equal(first, out), what + ": ranks differ");
      }
    }
    group->shutdown();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

TEST_P(Compressed, ThirtyTwoTimesFewerBytesThanAnAllReduce) {
  const auto [backend, ranks] = GetParam();
  const auto texts = run_ranks(ranks, [&](const Seat& seat) {
    const auto group = seat.join(backend, 300s);
    const std::int64_t chunk = 80'000, n = seat.world * chunk;
    const ErrorFeedback vector{at::ones({n}), at::zeros({chunk})};
    compressed_mean(*group, std::span(&vector, 1), {Traffic::Gradients, "momentum"});
    const std::int64_t sent = group->counters().of(Traffic::Gradients).bytes;
    const std::int64_t whole = 2 * (seat.world - 1) * chunk * 4;
    require(sent == compressed_mean_bytes(std::span(&chunk, 1), seat.world), "the formula");
    require(whole > 31 * sent, std::to_string(sent) + " bytes of " + std::to_string(whole));
    group->shutdown();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

/// Longer than the parts in which an owner adds up, and no multiple of them.
TEST(CompressedMean, LongChunksEqualTheSlowForm) {
  constexpr std::int64_t kChunk = 40'008;
  const auto texts = run_ranks(2, [&](const Seat& seat) {
    const auto group = seat.join("shm", 300s);
    Oracle oracle(2, 2 * kChunk);
    const ErrorFeedback vector{contribution(0, seat.rank, 2 * kChunk), at::zeros({kChunk})};
    const Numbers expected =
        oracle.mean({contribution(0, 0, 2 * kChunk), contribution(0, 1, 2 * kChunk)});
    const auto apart = [](const at::Tensor& found, const float* wanted) {
      std::vector<float> all(wanted, wanted + found.numel());
      return (found - at::tensor(all)).abs().max().item<double>();
    };
    const SignMeans means =
        compressed_mean(*group, std::span(&vector, 1), {Traffic::Gradients, "momentum"});
    const at::Tensor out = at::empty({2 * kChunk});
    means.read(0, 0, out);
    require(apart(out, expected.data()) <= 2e-6, "mean");
    require(apart(vector.server, oracle.server().data() + seat.rank * kChunk) <= 2e-6, "server");
    group->shutdown();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

INSTANTIATE_TEST_SUITE_P(Backends, Compressed,
                         ::testing::ValuesIn(backend_cases(kBackends, {2, 3, 4})), name_of_case);

}  // namespace
}  // namespace dsj::comm
