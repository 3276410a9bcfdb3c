// How fast the CPU backends move 64 MiB between 2 ranks, against gloo in the same run.
//
// For each collective and dtype the backends take turns, seven times. It prints the median of the
// slower rank's time. The last columns are gloo's time over the backend's: above 1 is faster than
// gloo.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <functional>

#include "engine/comm/collectives.h"
#include "tests/engine/comm/ranks.h"

namespace {

using namespace dsj::comm;
using testing_support::Seat;

constexpr int kWorld = 2;
constexpr int kRounds = 7;
constexpr std::int64_t kBytes = 64 << 20;
constexpr std::array kBackends{"gloo", "ring", "shm"};

using Groups = std::vector<std::unique_ptr<Collectives>>;
using Operation = std::function<WorkPtr(Collectives&, at::Tensor whole)>;

/// Milliseconds of the slower rank.
double time_once(Collectives& group, const Operation& operation, const at::Tensor& whole) {
  group.barrier({})->wait();
  const auto begin = std::chrono::steady_clock::now();
  operation(group, whole)->wait();
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
  at::Tensor slower = at::full({1}, time.count(), at::kDouble);
  group.all_reduce(slower, Op::Max, {})->wait();
  return slower.item<double>();
}

void measure(const Groups& groups, const char* name, at::ScalarType dtype,
             const Operation& operation) {
  const at::Tensor whole =
      at::ones({kBytes / static_cast<std::int64_t>(c10::elementSize(dtype))}, dtype);
  std::array<std::vector<double>, kBackends.size()> times;
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      times[i].push_back(time_once(*groups[i], operation, whole));
    }
  }
  if (groups[0]->rank() != 0) return;
  for (auto& list : times) std::ranges::sort(list);
  const auto median = [&](std::size_t i) { return times[i][kRounds / 2]; };
  std::printf("%-15s %-9s %9.1f %9.1f %9.1f %10.2f %10.2f\n", name, at::toString(dtype), median(0),
              median(1), median(2), median(0) / median(1), median(0) / median(2));
  std::fflush(stdout);
}

void run(const Seat& seat) {
  Groups groups;
  for (std::size_t i = 0; i < kBackends.size(); ++i) {
    groups.push_back(seat.join(kBackends[i], std::chrono::minutes(1), static_cast<int>(i)));
  }
  const auto slice = [](const Collectives& group, const at::Tensor& whole) {
    const std::int64_t n = whole.numel() / group.world();
    return whole.narrow(0, group.rank() * n, n);
  };
  if (seat.rank == 0) {
    std::printf("%d ranks, 64 MiB, median of %d, milliseconds\n", kWorld, kRounds);
    std::printf("%-15s %-9s %9s %9s %9s %10s %10s\n", "collective", "dtype", "gloo", "ring", "shm",
                "gloo/ring", "gloo/shm");
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    measure(groups, "all_gather", dtype, [&](Collectives& group, const at::Tensor& whole) {
      return group.all_gather(whole, slice(group, whole), {});
    });
    measure(groups, "reduce_scatter", dtype, [&](Collectives& group, const at::Tensor& whole) {
      return group.reduce_scatter(slice(group, whole), whole, Op::Sum, {});
    });
    measure(groups, "all_reduce", dtype, [&](Collectives& group, const at::Tensor& whole) {
      return group.all_reduce(whole, Op::Sum, {});
    });
    measure(groups, "broadcast", dtype, [&](Collectives& group, const at::Tensor& whole) {
      return group.broadcast(whole, 0, {});
    });
  }
}

}  // namespace

int main() {
  int failures = 0;
  for (const std::string& text : testing_support::run_ranks(kWorld, run)) {
    if (text.empty()) continue;
    std::fprintf(stderr, "%s\n", text.c_str());
    ++failures;
  }
  return failures == 0 ? 0 : 1;
}
