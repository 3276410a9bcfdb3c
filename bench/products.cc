// The engine's own matrix products beside libtorch's (MKL in fp32, oneDNN in bf16), in the same run.
// bench_products [TOKENS...]     default 120 250 512
//
// For each weight of the 24 M shape: forward, gradient of the input, gradient of the weight, in
// GFLOP/s, and ours over libtorch's. Six weights of a kind in turn, as a model of six layers has
// them: so they come from memory, not from the cache. The best of five rounds, both in turn.
// Threads: OMP_NUM_THREADS. Run one per core at once to measure what ranks leave each other.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "engine/device/products.h"
#include "engine/kernels/products.h"
#include "engine/memory/counting_allocator.h"

namespace {

using dsj::bench::seconds_of;
constexpr int kLayers = 6, kRounds = 5;
constexpr double kLeast = 0.03;  // seconds of a round

struct Weight {
  const char* name;
  int64_t out, in;
};
constexpr Weight kWeights[] = {{"qkv", 1152, 384},  {"o", 384, 384},     {"gate and up", 4096, 384},
                               {"down", 384, 2048}, {"head", 8192, 384}, {"4096", 4096, 4096}};

/// The fastest round of each: seconds per call.
std::vector<double> fastest(const std::vector<std::function<void()>>& ways) {
  std::vector<double> best(ways.size(), 1e9);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t way = 0; way < ways.size(); ++way) {
      int calls = 0;
      double seconds = 0;
      for (; seconds < kLeast; ++calls) seconds += seconds_of(ways[way]);
      best[way] = std::min(best[way], seconds / calls);
    }
  }
  return best;
}

/// Prints one of the three products: `a[i] b[i]`, into out[i].
void print(const std::vector<at::Tensor>& out, const std::vector<at::Tensor>& a,
           const std::vector<at::Tensor>& b) {
  const auto flops = 2.0 * static_cast<double>(out[0].numel() * a[0].size(1) * kLayers);
  const auto seconds = fastest({
      [&] {
        for (int i = 0; i < kLayers; ++i) dsj::device::multiply(out[i], a[i], b[i], {}, {});
      },
      [&] {
        for (int i = 0; i < kLayers; ++i) {
          at::Tensor into = out[i];
          at::mm_out(into, a[i], b[i]);
        }
      },
  });
  std::printf(" %.0f, %.0f, %.2f |", flops / seconds[0] / 1e9, flops / seconds[1] / 1e9,
              seconds[1] / seconds[0]);
}

void print_row(const Weight& weight, int64_t tokens, at::ScalarType type) {
  std::vector<at::Tensor> x, y, w, w_t, dw, dy_t;
  for (int i = 0; i < kLayers; ++i) {
    // Activations are of one layer: they were just written.
    x.push_back(i ? x[0] : at::randn({tokens, weight.in}).to(type));
    y.push_back(i ? y[0] : at::randn({tokens, weight.out}).to(type));
    w.push_back(at::randn({weight.out, weight.in}).to(type));
    w_t.push_back(w[i].t());
    dw.push_back(at::empty({weight.out, weight.in}, type));
    dy_t.push_back(y[i].t());
  }
  std::printf("| %s, %ld | %s |", weight.name, static_cast<long>(tokens),
              type == at::kFloat ? "fp32" : "bf16");
  const std::vector<at::Tensor> out(kLayers, at::empty({tokens, weight.out}, type));
  const std::vector<at::Tensor> dx(kLayers, at::empty({tokens, weight.in}, type));
  print(out, x, w_t);
  print(dx, y, w);
  print(dw, dy_t, x);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  dsj::memory::install();
  std::vector<int64_t> tokens;
  for (int i = 1; i < argc; ++i) tokens.push_back(std::max(1L, std::strtol(argv[i], nullptr, 10)));
  if (tokens.empty()) tokens = {120, 250, 512};
  std::printf("ours: %s, %d threads\n\n", dsj::kernels::product_table().isa, at::get_num_threads());
  std::printf(
      "| weight, tokens | type | forward: ours, libtorch, ratio | gradient of the input "
      "| gradient of the weight |\n|---|---|---|---|---|\n");
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const Weight& weight : kWeights)
      for (const int64_t count : tokens) print_row(weight, count, type);
}
