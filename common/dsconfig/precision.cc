// Number types: the model's, the loss scale, the types of gradients when summed and sent, and where
// they are averaged.
#include <cmath>

#include "common/dsconfig/resolver.h"
#include "common/text.h"

namespace dsj::dsconfig {

using nlohmann::json;
using Severity = Finding::Severity;

bool Resolver::enabled(const char* path, const std::optional<bool>& argument,
                       const char* argument_name) {
  const std::string argument_path = std::string("training.") + argument_name;
  const auto word = [](bool yes) { return std::string(yes ? "true" : "false"); };
  if (const json* value = literal(path)) {
    const bool found = value->get<bool>();
    if (argument && *argument != found) mismatch(path, word(found), argument_path, word(*argument));
    return found;
  }
  const bool yes = argument.value_or(false);
  if (is_auto(path) || argument)
    origin(path, word(yes), argument ? argument_path : "default (Hugging Face)");
  return yes;
}

std::optional<Precision> Resolver::dtype(const char* path) const {
  const json* value = literal(path);
  if (value == nullptr) return std::nullopt;
  const std::string name = value->get<std::string>();
  if (name == "bf16" || name == "bfp16" || name == "bfloat16" || name == "torch.bfloat16")
    return Precision::Bf16;
  if (name == "fp16" || name == "float16" || name == "half" || name == "torch.float16")
    return Precision::Fp16;
  return Precision::Fp32;
}

void Resolver::precision() {
  ResolvedConfig& config = out_.config;
  const bool bf16 = enabled("bf16.enabled", args_.bf16, "bf16");
  const bool fp16 = enabled("fp16.enabled", args_.fp16, "fp16");
  config.precision = bf16 ? Precision::Bf16 : fp16 ? Precision::Fp16 : Precision::Fp32;
  if (bf16 && fp16)
    report(Severity::Error, "fp16.enabled", "fp16 and bf16 are both on", "switch one off");
  if (alone_) type_of_the_job();
  config.bf16_check_grad_overflow = boolean("bf16.check_grad_overflow", true);
  if (fp16 || config.precision == Precision::Fp16) loss_scale();
  gradient_types();
  averaging();
}

/// If data_types asks for a type that the file leaves to the job, assumes that the job sets it.
void Resolver::type_of_the_job() {
  ResolvedConfig& config = out_.config;
  auto asked = dtype("data_types.param_dtype");
  if (!asked && integer("zero_optimization.stage", 0) == 0)
    asked = dtype("data_types.grad_accum_dtype");
  if (config.precision != Precision::Fp32 || asked.value_or(Precision::Fp32) == Precision::Fp32)
    return;
  const std::string name = name_of(*asked);
  if (literal(name + ".enabled") != nullptr) return;  // it says false
  config.precision = *asked;
  out_.notes.push_back({name + ".enabled", "data_types asks for this type: the job has to set it",
                        "spec.training." + name + ", or --" + name + " for dsj run"});
}

void Resolver::loss_scale() {
  LossScaleConfig& scale = out_.config.loss_scale;
  scale.fixed = number("fp16.loss_scale", 0);
  scale.initial = std::ldexp(1.0, static_cast<int>(integer("fp16.initial_scale_power", 16)));
  scale.window = integer("fp16.loss_scale_window", scale.window);
  scale.hysteresis = integer("fp16.hysteresis", scale.hysteresis);
  scale.consecutive_hysteresis = boolean("fp16.consecutive_hysteresis", false);
  scale.minimum = number("fp16.min_loss_scale", scale.minimum);
  if (scale.fixed != 0) return;
  const auto positive = [&](const char* path, double value) {
    if (value > 0) return;
    report(Severity::Error, path, "found " + text::number(value) + ", expected more than 0",
           "a dynamic loss scale (fp16.loss_scale 0) needs it");
  };
  positive("fp16.loss_scale_window", static_cast<double>(scale.window));
  positive("fp16.min_loss_scale", scale.minimum);
}

void Resolver::gradient_types() {
  ResolvedConfig& config = out_.config;
  const Precision model = config.precision;
  const char* accumulation = "data_types.grad_accum_dtype";
  const char* parameters = "data_types.param_dtype";
  config.communication_dtype = dtype("communication_data_type").value_or(model);
  config.grad_accum_dtype = dtype(accumulation).value_or(model);
  if (dtype(parameters).value_or(model) != model) {
    report(
        Severity::Error, parameters,
        std::string("the parameters are ") + name_of(model) + ", by fp16.enabled and bf16.enabled",
        "set these, and remove it");
  }
  // bf16 with an fp32 sum: DeepSpeed before 0.19 accepted it, and real files have it.
  const bool ours = model == Precision::Bf16 && config.grad_accum_dtype == Precision::Fp32;
  if (config.grad_accum_dtype != model && !ours && integer("zero_optimization.stage", 0) == 0) {
    report(Severity::Error, accumulation,
           std::string("without ZeRO ") + name_of(model) + " gradients are not accumulated in " +
               name_of(config.grad_accum_dtype),
           "zero_optimization.stage 1, 2 or 3, or remove it");
  }
  if (!dtype(accumulation) && model == Precision::Bf16)
    origin(accumulation, "bf16", "default (the model's type)");
}

void Resolver::averaging() {
  AveragingConfig& averaging = out_.config.averaging;
  const char* prescale = "prescale_gradients";
  const char* predivide = "gradient_predivide_factor";
  const char* operation = "gradient_allreduce_op";
  const json* op = literal(operation);
  averaging.mean = op == nullptr || *op == "mean";
  averaging.prescale = boolean(prescale, false);
  averaging.predivide = number(predivide, 1);
  if (averaging.predivide <= 0) {
    report(Severity::Error, predivide,
           "found " + text::number(averaging.predivide) + ", expected more than 0");
  }
  const int64_t stage = integer("zero_optimization.stage", 0);
  if (!averaging.mean && stage == 3) {
    report(Severity::Error, operation, "\"sum\" is not for ZeRO stage 3, in DeepSpeed too",
           "stages 0 to 2, or \"mean\"");
  }
  if (!averaging.mean || stage < 2 || !boolean("zero_optimization.reduce_scatter", true)) return;
  const std::string why =
      "is not for ZeRO stage " + std::to_string(stage) + " with reduce_scatter, in DeepSpeed too";
  const std::string hint = "zero_optimization.reduce_scatter false, or remove it";
  if (averaging.predivide != 1)
    report(Severity::Error, predivide, "a factor other than 1 " + why, hint);
  if (averaging.prescale) report(Severity::Error, prescale, "true " + why, hint);
}

}  // namespace dsj::dsconfig
