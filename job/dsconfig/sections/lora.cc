// Adapters, LoRA+, and a base in 4 bits (QLoRA): conflicts with other settings.
#include "job/dsconfig/config/optimizers.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {
namespace {

/// torch's name of the product's type.
std::string torch_name(Precision precision) {
  switch (precision) {
    case Precision::Bf16:
      return "bfloat16";
    case Precision::Fp16:
      return "float16";
    default:
      return "float32";
  }
}

/// Whether a parameter's update is its optimizer's rule at another rate, and nothing besides.
bool takes_a_rate_of_its_own(const OptimizerConfig& optimizer) {
  const Optimizer& of = descriptor_of(optimizer.kind);
  return !of.communicates && !of.parameter_sums && optimizer.kind != OptimizerKind::Muon &&
         optimizer.kind != OptimizerKind::Rprop;  // whose first steps are the rate
}

void resolve_lora_plus(const Source& in, ResolvedConfig& config, Report& out) {
  if (!in.args.lora || in.args.lora->lr_ratio == 1) return;
  config.optimizer.lora_plus_ratio = in.args.lora->lr_ratio;
  if (!takes_a_rate_of_its_own(config.optimizer))
    out.unsupported("training.lora.loraplusLrRatio",
                    "LoRA+ is not built for the optimizer " + name_of(config.optimizer),
                    "AdamW and the other optimizers of torch have it; or leave it out");
}

}  // namespace

void resolve_adapters(const Source& in, ResolvedConfig& config, Report& out) {
  resolve_lora_plus(in, config, out);
  if (in.args.lora && (in.args.trainable_parameters || in.args.trainable_layers))
    out.error(
        in.args.trainable_parameters ? "training.trainableParameters" : "training.trainableLayers",
        "cannot be combined with lora, which trains adapters and freezes the model",
        "leave it out; modulesToSave names modules that are trained whole beside adapters");
  if (!in.args.lora || !in.args.lora->load_in_4bit) return;
  if (config.zero.stage == 3)
    out.unsupported(
        "training.lora.loadIn4bit",
        "a base in 4 bits is not built for ZeRO stage 3: codes and their scales are not "
        "sharded",
        "set zero_optimization.stage to 2: every rank keeps the base in 4 bits, and "
        "the adapters' optimizer states are sharded");
  const std::string& asked = in.args.lora->compute_dtype;
  const std::string products = torch_name(product_type(config));
  if (!asked.empty() && asked != products)
    out.error("training.lora.bnb4bitComputeDtype",
              "found \"" + asked + "\", and products run in " + products + " in this job",
              "turn on bf16 or fp16 in the ds_config to choose their type, or write " + products);
}

}  // namespace dsj::dsconfig
