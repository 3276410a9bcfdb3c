// Two levels: how many bytes go from host to host, by count, against the ring over all ranks; and in
// which order sums are formed. What the operations return is contract_test.cc's.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/comm/backends.h"
#include "tests/engine/comm/ranks.h"

namespace dsj::comm {
namespace {

using namespace std::chrono_literals;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;

struct Shape {
  int hosts, each;
  int world() const { return hosts * each; }
  friend void PrintTo(const Shape& s, std::ostream* out) { *out << s.hosts << "x" << s.each; }
};

class Levels : public ::testing::TestWithParam<Shape> {};

std::unique_ptr<Collectives> join_hosts(const Seat& seat, const std::string& backend, int each,
                                        int group) {
  Options options = seat.options(backend, 300s, group);
  options.host = "host" + std::to_string(seat.rank / each);
  return testing_support::joined(options);
}

/// Bytes that this rank sent to another host in `operation`, frames of operations included. In the
/// ring only the last rank of a host has the next host's first behind it; a rail has one rank of each.
std::int64_t across(Collectives& group, int each,
                    const std::function<WorkPtr(Collectives&)>& operation) {
  const std::int64_t before = group.socket_bytes();
  operation(group)->wait();
  const std::int64_t sent = group.socket_bytes() - before;
  return group.backend() == "ring" && group.rank() % each != each - 1 ? 0 : sent;
}

/// Of all ranks of this rank's host; `count` is the same on each host.
double per_host(Collectives& group, int hosts, std::int64_t mine) {
  at::Tensor sum = at::full({1}, mine, at::kLong);
  group.all_reduce(sum, Op::Sum, {})->wait();
  return static_cast<double>(sum.item<std::int64_t>()) / hosts;
}

TEST_P(Levels, AHostSendsOnlyWhatOtherHostsLack) {
  const auto [hosts, each] = GetParam();
  const int world = GetParam().world();
  const auto texts = run_ranks(world, [&](const Seat& seat) {
    const auto flat = join_hosts(seat, "ring", each, 0);
    const auto levels = join_hosts(seat, "auto", each, 1);
    require(levels->backend() == "hierarchical", std::string(levels->backend()));
    const std::int64_t n = 60'000;
    at::Tensor whole = at::ones({world * n}), part = at::ones({n}), dealt = at::ones({world * n});
    const double bytes = static_cast<double>(whole.nbytes());
    const double w = world, h = hosts;
    const double frames = 64.0 * each;  // each operation of a rank begins with one
    const auto check = [&](const char* what, double of_ring, double of_levels,
                           const std::function<WorkPtr(Collectives&)>& operation) {
      const double ring = per_host(*flat, hosts, across(*flat, each, operation));
      const double mine = per_host(*flat, hosts, across(*levels, each, operation));
      if (seat.rank == 0) {
        std::printf(
            "%d hosts of %d ranks, %-14s %.0f bytes: ring %.0f, two levels %.0f bytes per host "
            "(%.2f)\n",
            hosts, each, what, bytes, ring, mine, mine / ring);
        std::fflush(stdout);
      }
      require(std::abs(ring - of_ring * bytes) <= frames, std::string(what) + " of the ring");
      require(std::abs(mine - of_levels * bytes) <= frames, std::string(what) + " of two levels");
    };
    check("all_gather", (w - 1) / w, (h - 1) / h,
          [&](Collectives& group) { return group.all_gather(whole, part, {}); });
    check("reduce_scatter", (w - 1) / w, (h - 1) / h,
          [&](Collectives& group) { return group.reduce_scatter(part, whole, Op::Sum, {}); });
    check("all_reduce", 2 * (w - 1) / w, 2 * (h - 1) / h,
          [&](Collectives& group) { return group.all_reduce(whole, Op::Sum, {}); });
    check("broadcast", (h - 1) / h, (h - 1) / h,
          [&](Collectives& group) { return group.broadcast(whole, 0, {}); });
    check("all_to_all", (w - 1) / 2, each * (h - 1) / 2,
          [&](Collectives& group) { return group.all_to_all(dealt, whole, {}); });
    flat->shutdown();
    levels->shutdown();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, Levels, ::testing::Values(Shape{2, 4}, Shape{3, 2}),
                         ::testing::PrintToStringParamName());

/// Within a host in rank order, then along the ring of hosts: slice of host h begins behind it.
TEST(LevelsOrder, SumsAreFormedWithinAHostFirst) {
  constexpr int kHosts = 3, kEach = 2, kWorld = kHosts * kEach;
  const std::int64_t n = 5'003;
  const auto input = [&](int rank) {
    at::manual_seed(77 + static_cast<std::uint64_t>(rank));
    return at::randn({kWorld * n});
  };
  const auto texts = run_ranks(kWorld, [&](const Seat& seat) {
    const auto group = join_hosts(seat, "hierarchical", kEach, 0);
    at::Tensor found = at::empty({n});
    group->reduce_scatter(found, input(seat.rank), Op::Sum, {})->wait();
    const auto of_host = [&](int host) {
      at::Tensor sum = input(host * kEach);
      for (int place = 1; place < kEach; ++place) sum += input(host * kEach + place);
      return sum.narrow(0, seat.rank * n, n);
    };
    const int mine = seat.rank / kEach;
    at::Tensor expected = of_host((mine + 1) % kHosts);
    for (int step = 2; step <= kHosts; ++step)
      expected = expected + of_host((mine + step) % kHosts);
    require(at::equal(found, expected), "another order of sums");
    group->shutdown();
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "");
}

TEST(LevelsJoin, HostsThatDoNotAllowItAreNamed) {
  const auto texts = run_ranks(3, [](const Seat& seat) {
    Options options = seat.options("hierarchical", 300s);
    options.host = seat.rank == 2 ? "b" : "a";
    const auto group = make_collectives(options);
    require(!group.has_value() && group.error().kind == ErrorKind::Environment, "joined");
    throw std::runtime_error(group.error().message);
  });
  for (const std::string& text : texts)
    EXPECT_THAT(text, ::testing::EndsWith("two or more: hosts of 1 and 2 ranks"));
}

}  // namespace
}  // namespace dsj::comm
