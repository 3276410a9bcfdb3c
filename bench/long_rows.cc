// Long rows: what one step of a row of 32,768 tokens takes in the 24 M shape (docs/data.md), fp32,
// with gradient checkpointing, by the allocator's own count, beside what `dsj plan` says; with the
// layers' inputs in memory, and in a file. Then tokens per second of steps of 8 rows of 1,024
// tokens, in pieces and whole, in turn, five rounds; medians.
//
// Usage: bench_long_rows [TOKENS]. 0: only the speed. A step of 32,768 tokens has 2e13 operations.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

#include "bench/timing.h"
#include "common/files/posix_files.h"
#include "engine/comm/collectives.h"
#include "engine/memory/counting_allocator.h"
#include "engine/train/step/step.h"
#include "engine/weights/weight_source.h"
#include "job/plan/memory_model.h"
#include "tools/random_model.h"

namespace {

using namespace dsj;

constexpr int kRounds = 5;
constexpr int64_t kShortRows = 8, kShortTokens = 1024;
constexpr tools::ModelShape kShape = {.hidden = 384,
                                      .layers = 6,
                                      .heads = 6,
                                      .kv_heads = 6,
                                      .inner = 2048,
                                      .vocabulary = 8192,
                                      .positions = 65536,
                                      .tied = false};

template <typename T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench_long_rows: %s\n", result.error().to_string().c_str());
  std::exit(2);
}
void must(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "bench_long_rows: %s\n", status.error().to_string().c_str());
  std::exit(2);
}

models::MicroBatch batch(int64_t rows, int64_t tokens) {
  at::manual_seed(1);
  const at::Tensor ids = at::randint(kShape.vocabulary, {rows * tokens}, at::kLong);
  return {ids, ids.clone(),
          models::RowBounds(std::vector<int64_t>(rows, tokens), at::Device(at::kCPU))};
}

/// A model of its own and its steps.
struct Side {
  plan::MemoryInput input;
  zero::ModelState state;
  std::unique_ptr<zero::LayerInputs> inputs;
  train::Stepper stepper;
  int64_t steps = 0;

  Side(const std::string& directory, const plan::MemoryInput& of, comm::Collectives& group)
      : input(of),
        state(input.model, input.config, at::kCPU, group),
        inputs(input.inputs_leave()
                   ? zero::make_layer_inputs(
                         input.model, input.config,
                         {.tokens = input.config.micro_batch_size * input.tokens_per_row,
                          .output_dir = directory},
                         {.note = [](const std::string& note) { std::puts(note.c_str()); }})
                   : nullptr),
        stepper(input.model, input.config,
                {.recompute = true, .pieces = input.pieces, .inputs = inputs.get()}, state,
                at::kCPU) {
    PosixFiles files;
    must(state.load(must(weights::WeightSource::open(files, directory))));
  }
  double step(const models::MicroBatch& rows) {
    return stepper
        .run({.micro_batches = std::span(&rows, 1),
              .step = steps++,
              .rates = {.lr = 1e-4, .previous_lr = 1e-4},
              .tokens = rows.rows().tokens()})
        .loss;
  }
};

plan::MemoryInput input_of(const std::string& directory, int64_t rows, int64_t tokens) {
  plan::MemoryInput input{.model = must(layout::read_model_config(directory)), .recompute = true};
  input.config.micro_batch_size = rows;
  input.config.optimizer.lr = 1e-4;
  input.tokens_per_row = tokens;
  return input;
}

/// One step of one row: its peaks beside the plan's, and beside the goal.
void show_memory(const std::string& directory, int64_t tokens, bool file,
                 comm::Collectives& group) {
  plan::MemoryInput input = input_of(directory, 1, tokens);
  input.config.cpu_checkpointing = file;
  memory::Ledger& ledger = memory::process_ledger();
  ledger.reset_peaks();
  Side side(directory, input, group);
  double loss = 0;
  const double seconds = bench::seconds_of([&] { loss = side.step(batch(1, tokens)); });
  const auto planned = plan::memory_model(input).bytes;
  const double mib = 1 << 20;
  const auto peak = [&](memory::Class klass) { return static_cast<double>(ledger.peak(klass)); };
  const double activations = peak(memory::Class::Activations);
  const double hidden = static_cast<double>(tokens * kShape.hidden * 4);
  // What a layer keeps for its backward without pieces.
  const double layer = static_cast<double>(tokens) * 4 * (4 * 384 + 3 * 384 + 2 * 2048);
  std::printf(
      "%lld tokens, inputs %s: loss %.6f, %.0f s; activations %.1f MiB, plan %.1f, ratio %.3f; "
      "host "
      "%.1f MiB, plan %.1f\n  layers x tokens x hidden x 4 = %.1f MiB, one layer's = %.1f MiB: "
      "%.3f "
      "of their sum\n",
      static_cast<long long>(tokens), file ? "in a file" : "in memory", loss, seconds,
      activations / mib, static_cast<double>(planned.activations) / mib,
      activations / static_cast<double>(planned.activations), peak(memory::Class::Host) / mib,
      static_cast<double>(planned.host) / mib, kShape.layers * hidden / mib, layer / mib,
      activations / (kShape.layers * hidden + layer));
  std::fflush(stdout);
}

void show_speed(const std::string& directory, comm::Collectives& group) {
  plan::MemoryInput cut = input_of(directory, kShortRows, kShortTokens), whole = cut;
  whole.pieces.piece = kShortRows * kShortTokens;
  Side in_pieces(directory, cut, group), in_one(directory, whole, group);
  const models::MicroBatch rows = batch(kShortRows, kShortTokens);
  in_pieces.step(rows);  // buffers, threads
  in_one.step(rows);
  std::vector<double> pieces, one;
  for (int round = 0; round < kRounds; ++round) {
    pieces.push_back(bench::seconds_of([&] { in_pieces.step(rows); }));
    one.push_back(bench::seconds_of([&] { in_one.step(rows); }));
  }
  const double tokens = kShortRows * kShortTokens;
  std::printf("8 rows of 1,024 tokens: %.0f tokens/s in pieces, %.0f whole, ratio %.3f\n",
              tokens / bench::median(pieces), tokens / bench::median(one),
              bench::median(one) / bench::median(pieces));
}

}  // namespace

int main(int argc, char** argv) {
  memory::install();
  c10::AutoGradMode no_autograd(false);
  PosixFiles files;
  const std::string directory =
      (std::filesystem::temp_directory_path() / ("bench_long_rows_" + std::to_string(getpid())))
          .string();
  must(files.make_dirs(directory));
  must(tools::write_random_model(files, directory, kShape, 1));
  const auto group = must(comm::make_collectives({.rank = 0, .world = 1}));
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 32768;
  if (tokens > 0) {
    show_memory(directory, tokens, false, *group);
    show_memory(directory, tokens, true, *group);
  }
  show_speed(directory, *group);
  std::filesystem::remove_all(directory);
  return 0;
}
