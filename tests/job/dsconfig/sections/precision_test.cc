// What fp16, bf16, data_types and the gradient keys resolve to, and which combinations are errors.
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"
#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

Resolution resolve_text(const std::string& text, const TrainingArgs& args = {}) {
  json config = json::parse(text);
  config["train_micro_batch_size_per_gpu"] = 1;
  return resolve(config, args, {});
}

/// One error, at `path`.
void expect_error(const std::string& text, const std::string& path) {
  const Resolution resolution = resolve_text(text);
  int errors = 0;
  for (const Finding& finding : resolution.findings) {
    if (finding.severity != Severity::Error) continue;
    ++errors;
    EXPECT_EQ(finding.path, path) << text;
    EXPECT_FALSE(finding.hint.empty() && finding.message.empty());
  }
  EXPECT_EQ(errors, 1) << text << "\n" << said(resolution);
}

TEST(Precision, OneOfFp16AndBf16) {
  expect_error(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})", "fp16.enabled");
  const Resolution fp16 = resolve_text(R"({"fp16": {"enabled": true}})");
  EXPECT_TRUE(fp16.runnable()) << said(fp16);
  EXPECT_EQ(fp16.config.precision, dsconfig::Precision::Fp16);
  EXPECT_EQ(fp16.config.communication_dtype, dsconfig::Precision::Fp16);
  EXPECT_EQ(fp16.config.grad_accum_dtype, dsconfig::Precision::Fp16);
  EXPECT_EQ(fp16.config.loss_scale.initial, 65536);
  EXPECT_EQ(fp16.config.loss_scale.hysteresis, 2);
  const Resolution said = resolve_text(R"({"fp16": {"enabled": "auto"}})", {.fp16 = true});
  EXPECT_EQ(said.config.precision, dsconfig::Precision::Fp16);
}

TEST(Precision, SparseGradientsGoUpToStageTwo) {
  for (const int stage : {0, 1, 2, 3}) {
    const Resolution resolution =
        resolve_text(R"({"sparse_gradients": true, "zero_optimization": {"stage": )" +
                     std::to_string(stage) + "}}");
    EXPECT_EQ(resolution.runnable(), stage < 3) << stage;
    EXPECT_EQ(said(resolution, Severity::Unsupported).contains("small tables are reduced together"),
              stage == 3);
  }
}

TEST(Precision, Bf16IsNotScaled) {
  const Resolution scaled = resolve_text(R"({"bf16": {"enabled": true, "loss_scale": 0}})");
  EXPECT_TRUE(scaled.runnable());
  ASSERT_EQ(scaled.findings.size(), 1u) << said(scaled);
  EXPECT_EQ(scaled.findings[0].severity, Severity::Warning);
  EXPECT_EQ(scaled.findings[0].path, "bf16.loss_scale");
}

TEST(Precision, ADynamicScaleNeedsAWindowAndAMinimum) {
  expect_error(R"({"fp16": {"enabled": true, "loss_scale_window": 0}})", "fp16.loss_scale_window");
  expect_error(R"({"fp16": {"enabled": true, "min_loss_scale": 0}})", "fp16.min_loss_scale");
  for (const char* unused : {R"({"fp16": {"enabled": true, "loss_scale": 8, "min_loss_scale": 0}})",
                             R"({"fp16": {"enabled": false, "loss_scale_window": 0}})",
                             R"({"fp16": {"enabled": true, "min_loss_scale": 1e-10}})"})
    EXPECT_TRUE(resolve_text(unused).runnable()) << unused << said(resolve_text(unused));
}

TEST(Precision, ParamDtypeMustBeTheModels) {
  EXPECT_TRUE(resolve_text(R"({"bf16": {"enabled": true}, "data_types": {"param_dtype": "bf16"}})")
                  .runnable());
  EXPECT_TRUE(resolve_text(R"({"data_types": {"param_dtype": "torch.float32"}})").runnable());
  expect_error(R"({"fp16": {"enabled": true}, "data_types": {"param_dtype": "bf16"}})",
               "data_types.param_dtype");
  expect_error(R"({"data_types": {"param_dtype": "fp16"}})", "data_types.param_dtype");
}

TEST(Precision, EveryGradientTypeUnderZero) {
  using dsconfig::Precision;
  for (const char* model :
       {"{}", R"({"bf16": {"enabled": true}})", R"({"fp16": {"enabled": true}})"}) {
    for (const auto& [name, type] :
         {std::pair{"fp32", Precision::Fp32}, std::pair{"fp16", Precision::Fp16},
          std::pair{"bf16", Precision::Bf16}}) {
      for (int stage = 0; stage <= 3; ++stage) {
        json config = json::parse(model);
        config["zero_optimization"] = {{"stage", stage}};
        config["communication_data_type"] = name;
        const Resolution wire = resolve_text(config.dump());
        EXPECT_TRUE(wire.runnable()) << config << said(wire);
        EXPECT_EQ(wire.config.communication_dtype, type);
        config["data_types"] = {{"grad_accum_dtype", name}};
        const Resolution sum = resolve_text(config.dump());
        const bool legal = stage > 0 || type == sum.config.precision ||
                           (sum.config.precision == Precision::Bf16 && type == Precision::Fp32);
        EXPECT_EQ(sum.runnable(), legal) << config << said(sum);
        if (legal) {
          EXPECT_EQ(sum.config.grad_accum_dtype, type);
        }
      }
    }
  }
  EXPECT_EQ(resolve_text(R"({"communication_data_type": "bfp16"})").config.communication_dtype,
            Precision::Bf16);
}

TEST(Precision, AveragingKeysWhereDeepSpeedTakesThem) {
  for (int stage = 0; stage <= 3; ++stage) {
    const std::string zero = R"("zero_optimization": {"stage": )" + std::to_string(stage);
    for (const char* key : {"prescale_gradients", "gradient_predivide_factor"}) {
      const std::string value =
          std::string("{\"") + key + "\": " + (key[0] == 'p' ? "true" : "2") + ", " + zero;
      if (stage < 2) {
        EXPECT_TRUE(resolve_text(value + "}}").runnable())
            << value << said(resolve_text(value + "}}"));
      } else {
        expect_error(value + "}}", key);
      }
      EXPECT_TRUE(resolve_text(value + R"(, "reduce_scatter": false}})").runnable()) << value;
    }
    const std::string sum = R"({"gradient_allreduce_op": "SUM", )" + zero + "}}";
    if (stage < 3) {
      EXPECT_TRUE(resolve_text(sum).runnable()) << sum << said(resolve_text(sum));
      EXPECT_FALSE(resolve_text(sum).config.averaging.mean);
    } else {
      expect_error(sum, "gradient_allreduce_op");
    }
  }
  expect_error(R"({"gradient_predivide_factor": 0})", "gradient_predivide_factor");
}

}  // namespace
}  // namespace dsj::dsconfig
