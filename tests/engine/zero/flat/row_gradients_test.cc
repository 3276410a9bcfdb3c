// Gradients that travel as rows: the sums of dense ones, and what goes over the wire.
#include "engine/zero/flat/row_gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/zero/model_state.h"
#include "job/plan/memory_model.h"
#include "job/plan/row_plan.h"
#include "tests/engine/support/ranks.h"

namespace dsj::zero {
namespace {

constexpr int64_t kRows = 400, kPositions = 21, kWidth = 24;  // no multiple of the alignment

/// Two tables in one flat, as GPT-2's embedding has.
layout::FlatLayout flat_of(int world, int64_t chunk_limit) {
  return {"embedding",
          {{"tokens", {kRows, kWidth}}, {"positions", {kPositions, kWidth}}},
          world,
          chunk_limit};
}

/// A rank's gradient: small whole numbers in a few rows, the last row of each table among them.
/// Their sums are exact in every type. One row sums to 0 and is not 0.
at::Tensor gradient_of_few_rows(const layout::FlatLayout& flat, int rank, at::ScalarType type) {
  const at::Tensor gradient = at::zeros({flat.numel()}, type);
  std::mt19937 random(static_cast<uint32_t>(rank) + 7);
  for (const auto& slot : flat.slots()) {
    const at::Tensor table = gradient.narrow(0, slot.offset, slot.numel).view({-1, kWidth});
    for (int i = 0; i < 12; ++i) {
      const auto row = static_cast<int64_t>(random() % static_cast<uint32_t>(table.size(0)));
      for (int64_t c = 0; c < kWidth; ++c) table[row][c] = static_cast<int64_t>(random() % 9) - 4;
    }
    table[table.size(0) - 1].fill_(rank + 1);
    table[3].zero_();
    table[3][0] = 2;
    table[3][1] = -2;
  }
  return gradient;
}

/// This rank's part of a whole gradient, as ranges say.
at::Tensor part_of(const layout::FlatLayout& flat, int owner, const at::Tensor& whole) {
  const at::Tensor part = at::zeros({flat.shard_numel()}, whole.options());
  for (const auto& range : flat.ranges(owner))
    part.narrow(0, range.shard_offset, range.numel)
        .copy_(whole.narrow(0, range.flat_offset, range.numel));
  return part;
}

TEST(RowGradients, EqualDenseSums) {
  for (const int world : {2, 3}) {
    for (const bool sharded : {false, true}) {
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        for (const int64_t chunk_limit : {INT64_MAX, int64_t{700}}) {
          SCOPED_TRACE(std::to_string(world) + (sharded ? " sharded " : " ") + c10::toString(type));
          testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
            const auto flat = flat_of(sharded ? world : 1, chunk_limit);
            const int owner = sharded ? collectives.rank() : 0;
            at::Tensor whole = at::zeros({flat.numel()}, type);
            for (int rank = 0; rank < world; ++rank)
              whole += gradient_of_few_rows(flat, rank, type);
            auto rows =
                RowGradients::start(flat, gradient_of_few_rows(flat, collectives.rank(), type),
                                    {.communication = type, .factor = 0.5, .sharded = sharded},
                                    collectives, {comm::Traffic::Gradients, "embedding"});
            ASSERT_NE(rows, nullptr);
            const at::Tensor out = at::full({flat.shard_numel()}, 99, type);
            rows->read(flat.ranges(owner), out);
            EXPECT_TRUE(at::equal(out, part_of(flat, owner, whole.mul(0.5))));
          });
        }
      }
    }
  }
}

TEST(RowGradients, NothingTouchedIsZeroAndNotANumberTravels) {
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    const auto flat = flat_of(1, INT64_MAX);
    at::Tensor gradient = at::zeros({flat.numel()});
    const at::Tensor out = at::empty({flat.numel()});
    auto rows = RowGradients::start(flat, gradient, {}, collectives, {});
    ASSERT_NE(rows, nullptr);
    rows->read(flat.ranges(0), out);
    EXPECT_EQ(out.abs().max().item<float>(), 0);
    if (collectives.rank() == 1) gradient[5 * kWidth + 2] = NAN;
    rows = RowGradients::start(flat, gradient, {}, collectives, {});
    rows->read(flat.ranges(0), out);
    EXPECT_TRUE(out[5 * kWidth + 2].isnan().item<bool>()) << "a step with it is skipped";
    EXPECT_EQ(out.isnan().sum().item<int64_t>(), 1);
  });
}

TEST(RowGradients, AFullGradientIsSentDense) {
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    const auto flat = flat_of(1, INT64_MAX);
    // One rank alone has it: the others know by the counts.
    const at::Tensor gradient = at::full({flat.numel()}, collectives.rank(), at::kFloat);
    EXPECT_EQ(RowGradients::start(flat, gradient, {}, collectives, {}), nullptr);
  });
}

constexpr int64_t kTokens = 100, kVocabulary = 151'936;

/// A step over the flats alone, with a gradient in kTokens rows of the embedding. Returns the bytes
/// of gradients on the wire, and the peak of the buckets.
std::pair<int64_t, int64_t> step_of(const layout::ModelConfig& model,
                                    const dsconfig::ResolvedConfig& config) {
  std::pair<int64_t, int64_t> seen;
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger& ledger) {
    ModelState state(model, config, at::kCPU, collectives);
    collectives.reset_counters();
    for (int f = 0; f < static_cast<int>(state.plan().flats.size()); ++f) {
      const auto& slots = state.plan().flats[static_cast<size_t>(f)].slots();
      for (int s = 0; s < static_cast<int>(slots.size()); ++s) {
        const at::Tensor gradient = state.flat(f).grad(s).tensor.zero_();
        if (f == state.plan().unit_flat[0])
          for (int64_t i = 0; i < kTokens; ++i)
            gradient[(i * 1511 + collectives.rank() * 77) % kVocabulary].fill_(1);
      }
      state.reduce(f, true);
    }
    state.finish_reductions();
    if (collectives.rank() == 0)
      seen = {collectives.counters().of(comm::Traffic::Gradients).bytes,
              ledger.peak(memory::Class::Buckets)};
  });
  return seen;
}

TEST(RowGradients, SendOnlyTheRowsTouchedAtAFullVocabulary) {
  const layout::ModelConfig model{.model_type = "qwen2",
                                  .vocab_size = kVocabulary,
                                  .hidden_size = 16,
                                  .intermediate_size = 16,
                                  .num_layers = 1,
                                  .num_heads = 2,
                                  .num_kv_heads = 2,
                                  .head_dim = 8,
                                  .max_position = kTokens};
  const int64_t row = 8 + 16 * 4, table = kVocabulary * 16 * 4;
  for (const int stage : {0, 1, 2}) {
    SCOPED_TRACE(stage);
    dsconfig::ResolvedConfig config;
    config.micro_batch_size = 1;
    config.zero.stage = stage;
    const auto [dense, dense_buckets] = step_of(model, config);
    config.sparse_gradients = true;
    const auto [sparse, buckets] = step_of(model, config);
    EXPECT_EQ(dense - sparse, table / (stage == 0 ? 1 : 2) - kTokens * row - 8);
    EXPECT_LT(kTokens * row + 8, table / 1000) << "a thousandth of the embedding's bytes";
    const auto planned = plan::memory_model(
        {.model = model, .config = config, .world = 2, .tokens_per_row = kTokens});
    EXPECT_EQ(sparse, planned.wire.gradient_bytes);
    EXPECT_LE(buckets, planned.bytes.buckets);
  }
}

}  // namespace
}  // namespace dsj::zero
