// An optimizer step whose master and moments lie in a file, against raw reads and writes of the
// same bytes on the same disk. They take turns; medians of five. Arguments: a directory on the disk
// (default: the current one), millions of parameters (default 16), thousands of elements per tile
// (default 1024).
//
// "one after the other" reads the whole file by O_DIRECT, then writes it. "both at once" keeps
// reads and writes in flight together, with the same calls as the step, and computes nothing.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "bench/timing.h"
#include "engine/aio/scratch.h"
#include "engine/memory/counting_allocator.h"
#include "engine/zero/flat/update.h"
#include "engine/zero/storage/owned_state.h"
#include "engine/zero/storage/storage_error.h"

namespace {

using namespace dsj;
using bench::median;
using bench::seconds_of;
constexpr int kRounds = 5;
constexpr int kVectors = 3;

/// Reads the whole file, then writes it, in calls of 8 MiB.
void raw(const std::string& path, int64_t bytes) {
  constexpr int64_t kCall = 8 << 20;
  const int file = ::open(path.c_str(), O_RDWR | O_DIRECT);
  void* memory = std::aligned_alloc(aio::kAlign, kCall);
  if (file < 0 || !memory) std::abort();
  for (const bool write : {false, true}) {
    for (int64_t at = 0; at < bytes; at += kCall) {
      const auto count = static_cast<size_t>(std::min(kCall, bytes - at));
      const ssize_t done =
          write ? ::pwrite(file, memory, count, at) : ::pread(file, memory, count, at);
      if (done != static_cast<ssize_t>(count)) std::abort();
    }
  }
  std::free(memory);
  ::close(file);
}

struct Swapped {
  layout::OffloadPlan plan;
  std::string path, implementation;
  std::unique_ptr<zero::OwnedState> state;
};

Swapped make(const aio::Scratch& scratch, int64_t n, int64_t tile) {
  Swapped swapped;
  swapped.plan = layout::plan_offload(
      {.flats = {{n, kVectors, 0}},
       .optimizer = {
           .place = layout::Place::File, .staging = 3 * kVectors * tile, .tiles_at_once = 3}});
  auto created =
      zero::value_or_throw(scratch.create("bench.swap", swapped.plan.optimizer_file_bytes, {}));
  swapped.path = created.file->path();
  swapped.implementation = created.file->implementation();
  std::vector<zero::TileSpec> tiles;
  for (const auto& part : swapped.plan.optimizer[0])
    tiles.push_back({part.file_offset, layout::file_bytes(part.numel, kVectors, 4)});
  const auto cache = std::make_shared<zero::TileCache>(
      std::move(created.file), std::move(tiles),
      zero::TileCacheOptions{.slots = 3, .slot_bytes = swapped.plan.optimizer_tile_bytes});
  swapped.state = std::make_unique<zero::OwnedState>(
      n,
      zero::ShardStoreOptions{
          .parts = swapped.plan.optimizer[0], .initial = {1.0, 0.0, 1e-6}, .tiles = cache},
      zero::ShardStoreOptions{});
  return swapped;
}

}  // namespace

int main(int argc, char** argv) try {
  memory::install();
  const std::string root = argc > 1 ? argv[1] : ".";
  const int64_t n = (argc > 2 ? std::atoll(argv[2]) : 16) * 1'000'000;
  const int64_t tile = (argc > 3 ? std::atoll(argv[3]) : 1024) * 1000;
  const auto scratch =
      zero::value_or_throw(aio::Scratch::make(root, {.job = "bench"}, "argument 1"));
  const Swapped swapped = make(*scratch, n, tile);
  const int64_t bytes = swapped.plan.optimizer_file_bytes;
  const at::Tensor grad = at::randn({n}).to(at::kBFloat16), low = at::empty_like(grad);
  const optim::Update update{.rule =
                                 optim::AdamRule{1e-4, 0.9, 0.999, 1e-8, 0.01, true, 0.1, 0.001}};
  const auto pass = [&](bool computes) {
    swapped.state->for_runs(zero::Access::ReadWrite, std::nullopt, [&](const zero::OwnedRun& run) {
      if (!computes) return;
      const std::vector<at::Tensor> states = {run.optimizer[1], run.optimizer[2]};
      zero::update_span(update, {run.optimizer[0], grad.narrow(0, run.begin, run.numel), states,
                                 low.narrow(0, run.begin, run.numel)});
    });
  };
  pass(false);  // the first write of a new file also allocates
  std::vector<double> apart, together, step;
  for (int round = 0; round < kRounds; ++round) {
    apart.push_back(seconds_of([&] { raw(swapped.path, bytes); }));
    together.push_back(seconds_of([&] { pass(false); }));
    step.push_back(seconds_of([&] { pass(true); }));
  }
  const double gigabytes = 2 * static_cast<double>(bytes) / 1e9;
  std::printf(
      "%.0f M parameters, %.2f GB read and written per step, tiles of %ld elements, %s, %d "
      "threads, median of %d\n",
      static_cast<double>(n) / 1e6, gigabytes, static_cast<long>(swapped.plan.tile),
      swapped.implementation.c_str(), at::get_num_threads(), kRounds);
  std::printf("%-36s %8s %8s\n", "", "s", "GB/s");
  const auto line = [&](const char* name, const std::vector<double>& times) {
    std::printf("%-36s %8.3f %8.2f\n", name, median(times), gigabytes / median(times));
  };
  line("raw, one after the other", apart);
  line("raw, both at once", together);
  line("optimizer step", step);
  std::printf("raw over step: %.2f (one after the other), %.2f (both at once)\n",
              median(apart) / median(step), median(together) / median(step));
} catch (const zero::StorageError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
