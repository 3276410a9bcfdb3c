// Adapters, and a base in 4 bits (QLoRA): conflicts with other settings.
#include "job/dsconfig/parts.h"

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

}  // namespace

void check_lora(const Source& in, const ResolvedConfig& config, Report& out) {
  if (in.args.lora && (in.args.trainable_parameters || in.args.trainable_layers))
    out.error(
        in.args.trainable_parameters ? "training.trainableParameters" : "training.trainableLayers",
        "does not go with lora, which trains adapters and freezes the model",
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
