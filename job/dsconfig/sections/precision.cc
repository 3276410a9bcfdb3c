// Number types: the model's, the loss scale, the types of gradients for sums and messages, and
// where gradients are averaged.
#include <cmath>
#include <optional>

#include "common/text.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

bool enabled(const Source& in, Report& out, const char* path, const std::optional<bool>& argument,
             const char* argument_name) {
  const std::string argument_path = std::string("training.") + argument_name;
  const auto word = [](bool yes) { return std::string(yes ? "true" : "false"); };
  if (const json* value = in.literal(path)) {
    const bool found = value->get<bool>();
    if (argument && *argument != found)
      out.mismatch(path, word(found), argument_path, word(*argument));
    return found;
  }
  const bool yes = argument.value_or(false);
  if (in.is_auto(path) || argument)
    out.origin(path, word(yes), argument ? argument_path : kHuggingFaceDefault);
  return yes;
}

std::optional<Precision> dtype(const Source& in, const char* path) {
  const json* value = in.literal(path);
  if (value == nullptr) return std::nullopt;
  const std::string name = value->get<std::string>();
  if (name == "bf16" || name == "bfp16" || name == "bfloat16" || name == "torch.bfloat16")
    return Precision::Bf16;
  if (name == "fp16" || name == "float16" || name == "half" || name == "torch.float16")
    return Precision::Fp16;
  return Precision::Fp32;
}

/// If data_types needs a type that the file leaves to the job, assumes that the job sets it.
void type_of_the_job(const Source& in, ResolvedConfig& config, Report& out) {
  auto asked = dtype(in, "data_types.param_dtype");
  if (!asked && config.zero.stage == 0) asked = dtype(in, "data_types.grad_accum_dtype");
  if (config.precision != Precision::Fp32 || asked.value_or(Precision::Fp32) == Precision::Fp32)
    return;
  const std::string name = name_of(*asked);
  if (in.literal(name + ".enabled") != nullptr) return;  // it is false
  config.precision = *asked;
  out.note({name + ".enabled", "data_types asks for this type: the job has to set it",
            "spec.training." + name + ", or --" + name + " for dsj run"});
}

void loss_scale(LossScaleConfig& scale, const Source& in, Report& out) {
  scale.initial = std::ldexp(1.0, static_cast<int>(in.value<int64_t>("fp16.initial_scale_power")));
  if (scale.fixed != 0) return;
  const auto positive = [&](const char* path, double value) {
    if (value > 0) return;
    out.error(path, "found " + text::number(value) + ", expected more than 0",
              "a dynamic loss scale (fp16.loss_scale 0) needs it");
  };
  positive("fp16.loss_scale_window", static_cast<double>(scale.window));
  positive("fp16.min_loss_scale", scale.minimum);
}

void gradient_types(const Source& in, ResolvedConfig& config, Report& out) {
  const Precision model = config.precision;
  const char* accumulation = "data_types.grad_accum_dtype";
  const char* parameters = "data_types.param_dtype";
  config.communication_dtype = dtype(in, "communication_data_type").value_or(model);
  config.grad_accum_dtype = dtype(in, accumulation).value_or(model);
  if (dtype(in, parameters).value_or(model) != model) {
    out.error(
        parameters,
        std::string("the parameters are ") + name_of(model) + ", by fp16.enabled and bf16.enabled",
        "set these, and remove it");
  }
  // bf16 with fp32 sums: DeepSpeed before 0.19 accepted it, and real files have it.
  const bool ours = model == Precision::Bf16 && config.grad_accum_dtype == Precision::Fp32;
  if (config.grad_accum_dtype != model && !ours && config.zero.stage == 0) {
    out.error(accumulation,
              std::string("without ZeRO ") + name_of(model) + " gradients are not accumulated in " +
                  name_of(config.grad_accum_dtype),
              "zero_optimization.stage 1, 2 or 3, or remove it");
  }
  if (!dtype(in, accumulation) && model == Precision::Bf16)
    out.origin(accumulation, "bf16", "default (the model's type)");
}

void averaging_rules(const Source& in, ResolvedConfig& config, Report& out) {
  AveragingConfig& averaging = config.averaging;
  const char* prescale = "prescale_gradients";
  const char* predivide = "gradient_predivide_factor";
  const char* operation = "gradient_allreduce_op";
  averaging.mean = in.value<std::string>(operation) == "mean";
  if (averaging.predivide <= 0) {
    out.error(predivide, "found " + text::number(averaging.predivide) + ", expected more than 0");
  }
  const int stage = config.zero.stage;
  if (config.sparse_gradients && stage == 3)
    out.unsupported(
        "sparse_gradients",
        "it does not work with stage 3, where small tables are reduced together with other "
        "parameters; DeepSpeed ignores it above stage 0",
        "use stage 0, 1 or 2, or remove it");
  if (!averaging.mean && stage == 3) {
    out.error(operation, "\"sum\" is not for ZeRO stage 3, in DeepSpeed too",
              "stages 0 to 2, or \"mean\"");
  }
  if (!averaging.mean || stage < 2 || !in.value<bool>("zero_optimization.reduce_scatter")) return;
  const std::string why =
      "is not for ZeRO stage " + std::to_string(stage) + " with reduce_scatter, in DeepSpeed too";
  const std::string hint = "zero_optimization.reduce_scatter false, or remove it";
  if (averaging.predivide != 1) out.error(predivide, "a factor other than 1 " + why, hint);
  if (averaging.prescale) out.error(prescale, "true " + why, hint);
}

}  // namespace

void resolve_precision(const Source& in, ResolvedConfig& config, Report& out) {
  const bool bf16 = enabled(in, out, "bf16.enabled", in.args.bf16, "bf16");
  const bool fp16 = enabled(in, out, "fp16.enabled", in.args.fp16, "fp16");
  config.precision = bf16 ? Precision::Bf16 : fp16 ? Precision::Fp16 : Precision::Fp32;
  if (bf16 && fp16) out.error("fp16.enabled", "fp16 and bf16 are both on", "switch one off");
  if (in.alone) type_of_the_job(in, config, out);
  if (fp16 || config.precision == Precision::Fp16)
    loss_scale(config.loss_scale, in, out);
  else
    config.loss_scale = {};  // no effect
  resolve_amp(in, config, out);
  gradient_types(in, config, out);
  averaging_rules(in, config, out);
}

}  // namespace dsj::dsconfig
