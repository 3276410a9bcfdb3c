// One rank of a bench of collectives between hosts: the ring over all ranks beside the two levels of
// backend auto, in the same run. scripts/bench_levels.py starts the ranks, on two hosts.
//
// RANK, WORLD_SIZE and MASTER_ADDR as torchrun has them; the stores are on ports 29500 and 29501. For
// each collective the two take turns; the median of the slowest rank's time counts. Rank 0 prints.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "engine/comm/collectives.h"

namespace {

using namespace dsj::comm;
using Operation = std::function<WorkPtr(Collectives&)>;

constexpr int kRounds = 5;

std::unique_ptr<Collectives> join(const char* backend, int port) {
  const char* address = std::getenv("MASTER_ADDR");
  auto group = make_collectives({.rank = std::atoi(std::getenv("RANK")),
                                 .world = std::atoi(std::getenv("WORLD_SIZE")),
                                 .master_addr = address,
                                 .master_port = port,
                                 .timeout = std::chrono::minutes(2),
                                 .backend = backend});
  if (group) return std::move(*group);
  std::fprintf(stderr, "%s\n", group.error().to_string().c_str());
  std::exit(1);
}

/// Seconds of the slowest rank.
double time_once(Collectives& group, const Operation& operation) {
  group.barrier({})->wait();
  const auto begin = std::chrono::steady_clock::now();
  operation(group)->wait();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  at::Tensor slowest = at::full({1}, time.count(), at::kDouble);
  group.all_reduce(slowest, Op::Max, {})->wait();
  return slowest.item<double>();
}

/// Bytes that all ranks put on connections in one operation.
double socket_megabytes(Collectives& group, const Operation& operation) {
  const std::int64_t before = group.socket_bytes();
  operation(group)->wait();
  at::Tensor sent = at::full({1}, group.socket_bytes() - before, at::kLong);
  group.all_reduce(sent, Op::Sum, {})->wait();
  return static_cast<double>(sent.item<std::int64_t>()) / 1e6;
}

void measure(Collectives& flat, Collectives& levels, const char* name, double megabytes,
             const Operation& operation) {
  std::vector<double> of_flat, of_levels;
  for (int round = 0; round < kRounds; ++round) {
    of_flat.push_back(time_once(flat, operation));
    of_levels.push_back(time_once(levels, operation));
  }
  const double flat_sent = socket_megabytes(flat, operation);
  const double levels_sent = socket_megabytes(levels, operation);
  if (flat.rank() != 0) return;
  std::ranges::sort(of_flat);
  std::ranges::sort(of_levels);
  const double a = of_flat[kRounds / 2], b = of_levels[kRounds / 2];
  std::printf("%-15s %8.3f %8.3f %9.3f %9.3f %7.2f %9.1f %9.1f\n", name, a, b, megabytes / 1e3 / a,
              megabytes / 1e3 / b, a / b, flat_sent, levels_sent);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t n = (argc > 1 ? std::atoll(argv[1]) : 32) << 18;  // MiB of fp32
  const auto flat = join("ring", 29500), levels = join("auto", 29501);
  if (levels->backend() != "hierarchical") {
    std::fprintf(stderr, "auto is %s here\n", std::string(levels->backend()).c_str());
    return 1;
  }
  at::Tensor whole = at::zeros({n / flat->world() * flat->world()});
  at::Tensor part = at::zeros({n / flat->world()});
  const double megabytes = static_cast<double>(whole.nbytes()) / 1e6;
  if (flat->rank() == 0) {
    std::printf("%-15s %8s %8s %9s %9s %7s %9s %9s\n", "collective", "ring s", "levels s",
                "ring GB/s", "lev. GB/s", "gain", "ring MB", "lev. MB");
  }
  measure(*flat, *levels, "all_gather", megabytes,
          [&](Collectives& group) { return group.all_gather(whole, part, {}); });
  measure(*flat, *levels, "reduce_scatter", megabytes,
          [&](Collectives& group) { return group.reduce_scatter(part, whole, Op::Sum, {}); });
  measure(*flat, *levels, "all_reduce", megabytes,
          [&](Collectives& group) { return group.all_reduce(whole, Op::Sum, {}); });
  measure(*flat, *levels, "broadcast", megabytes,
          [&](Collectives& group) { return group.broadcast(whole, 0, {}); });
  flat->shutdown();
  levels->shutdown();
  return 0;
}
