// Which models can have their rows cut over ranks.
#include "job/plan/row_cut_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsj::plan {
namespace {

using testing::HasSubstr;

TEST(RowCutPlan, QueryHeadsAreDealtEvenly) {
  for (int64_t heads = 1; heads <= 12; ++heads) {
    for (int64_t ranks = 1; ranks <= 12; ++ranks) {
      layout::ModelConfig model;
      model.num_heads = heads;
      model.num_kv_heads = 1;  // shared ones are copied
      dsconfig::ResolvedConfig config;
      config.sequence_parallel_size = ranks;
      const Status met = check_row_cut(model, config);
      EXPECT_EQ(met.has_value(), heads % ranks == 0) << heads << " heads, " << ranks << " ranks";
      if (met) continue;
      EXPECT_EQ(met.error().where, "sequence_parallel_size");
      EXPECT_THAT(met.error().message, HasSubstr(std::to_string(heads) + " query heads"));
      EXPECT_THAT(met.error().hint, HasSubstr("num_attention_heads"));
    }
  }
}

TEST(RowCutPlan, ModelsWhoseOtherLayersSeeTheRowAreRefused) {
  layout::ModelConfig model;
  model.num_heads = model.num_kv_heads = 4;
  dsconfig::ResolvedConfig config;
  config.sequence_parallel_size = 2;
  ASSERT_TRUE(check_row_cut(model, config));
  layout::ModelConfig delta = model, conv = model, balanced = model;
  delta.delta.key_heads = 2;
  EXPECT_THAT(check_row_cut(delta, config).error().message, HasSubstr("delta rule"));
  conv.conv.kernel = 3;
  EXPECT_THAT(check_row_cut(conv, config).error().message, HasSubstr("short convolution"));
  balanced.experts.balance = 0.01;
  EXPECT_THAT(check_row_cut(balanced, config).error().message, HasSubstr("auxiliary loss"));
  config.sequence_parallel_size = 1;
  EXPECT_TRUE(check_row_cut(delta, config));
  EXPECT_TRUE(check_row_cut(conv, config));
  EXPECT_TRUE(check_row_cut(balanced, config));
}

TEST(RowCutPlan, LayersThatShareAreRefusedWithTokensLeftOut) {
  layout::ModelConfig plain, inputs, keys;
  inputs.layer_input = 8;
  keys.key_layers = {0, 0};
  dsconfig::ResolvedConfig config;
  for (const auto& model : {plain, inputs, keys}) EXPECT_TRUE(check_left_out(model, config));
  config.data_efficiency.random_ltd.emplace();
  EXPECT_TRUE(check_left_out(plain, config));
  for (const auto& model : {inputs, keys}) {
    const Status met = check_left_out(model, config);
    ASSERT_FALSE(met);
    EXPECT_EQ(met.error().where, "data_efficiency.data_routing.random_ltd");
    EXPECT_THAT(met.error().message, HasSubstr("num_kv_shared_layers"));
    EXPECT_THAT(met.error().hint, HasSubstr("enabled"));
  }
}

}  // namespace
}  // namespace dsj::plan
