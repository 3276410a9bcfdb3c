// Which flats travel as rows, and what that costs.
#include "job/plan/row_plan.h"

#include <gtest/gtest.h>

#include "job/plan/memory_model.h"
#include "job/plan/zero_plan.h"

namespace dsj::plan {
namespace {

layout::ModelConfig wide_vocabulary(bool tied = false) {
  return {.model_type = "qwen2",
          .vocab_size = 50'000,
          .hidden_size = 32,
          .intermediate_size = 64,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 2,
          .head_dim = 16,
          .tied = tied};
}

dsconfig::ResolvedConfig sparse_config(int stage, bool sparse = true) {
  dsconfig::ResolvedConfig config;
  config.micro_batch_size = 2;
  config.zero.stage = stage;
  config.sparse_gradients = sparse;
  return config;
}

TEST(RowPlan, OnlyAnUntiedEmbeddingTravelsAsRows) {
  for (const int stage : {0, 1, 2}) {
    const auto units = layout::units_of(wide_vocabulary());
    const auto config = sparse_config(stage);
    const auto flats = plan_flats(units, config, 2);
    for (int f = 0; f < static_cast<int>(flats.flats.size()); ++f)
      EXPECT_EQ(sends_rows(units, flats, config, f), f == flats.unit_flat[0]) << f;
    EXPECT_EQ(dense_because(units, config), "");
    EXPECT_FALSE(sends_rows(units, flats, sparse_config(stage, false), flats.unit_flat[0]));

    const auto tied = layout::units_of(wide_vocabulary(true));
    EXPECT_FALSE(sends_rows(tied, plan_flats(tied, config, 2), config, 0));
    EXPECT_NE(dense_because(tied, config).find("tied"), std::string::npos);
    EXPECT_EQ(dense_because(tied, sparse_config(stage, false)), "") << "nobody asked";
  }
}

TEST(RowPlan, RowsAreSentOnlyWhereTheyAreFewerBytes) {
  const layout::FlatLayout flat("embedding", {{"e", {1000, 32}}}, 1, INT64_MAX);
  const RowCost some{flat, false, 4, 10, 4};
  EXPECT_EQ(some.row_bytes(), 3 * 10 * (8 + 32 * 4));
  EXPECT_EQ(some.dense_bytes(), 2 * 3 * 1000 * 32 * 4 / 4);
  EXPECT_TRUE(some.pays());
  const RowCost all{flat, false, 4, 1000, 4};
  EXPECT_FALSE(all.pays());
  const RowCost sharded{flat, true, 4, 10, 4};
  EXPECT_EQ(sharded.dense_bytes(), some.dense_bytes() / 2) << "a reduce-scatter";
}

TEST(RowPlan, TouchedRowsAreAtMostTokensAndRows) {
  const layout::FlatLayout llama("embedding", {{"tokens", {1000, 32}}}, 1, INT64_MAX);
  EXPECT_EQ(touched_rows(llama, 300, 100), 300);
  EXPECT_EQ(touched_rows(llama, 3000, 100), 1000);
  const layout::FlatLayout gpt2("embedding", {{"tokens", {1000, 32}}, {"positions", {128, 32}}}, 1,
                                INT64_MAX);
  EXPECT_EQ(touched_rows(gpt2, 300, 100), 400);
  EXPECT_EQ(touched_rows(gpt2, 300, 200), 428);
}

TEST(RowPlan, TheMemoryModelCountsRows) {
  for (const int stage : {0, 1, 2}) {
    MemoryInput input{.model = wide_vocabulary(),
                      .config = sparse_config(stage),
                      .world = 2,
                      .tokens_per_row = 64};
    const auto sparse = memory_model(input);
    input.config.sparse_gradients = false;
    const auto dense = memory_model(input);
    const int64_t table = 50'000 * 32 * 4 / (stage == 0 ? 1 : 2);
    EXPECT_EQ(dense.wire.gradient_bytes - sparse.wire.gradient_bytes,
              table - 2 * 64 * (8 + 32 * 4) - 8)
        << stage;
    EXPECT_EQ(sparse.wire.parameter_bytes, dense.wire.parameter_bytes);
    EXPECT_GT(sparse.bytes.buckets, dense.bytes.buckets);
  }
}

}  // namespace
}  // namespace dsj::plan
