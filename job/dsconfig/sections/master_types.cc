// The types of masters and optimizer states: fp32, unless the file requests 16 bits. Checks
// DeepSpeed's rules about combinations.
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

constexpr char kBf16Masters[] = "bf16.bf16_master_weights_and_grads";
constexpr char kBf16States[] = "bf16.bf16_optimizer_states";
constexpr char kFp16Masters[] = "fp16.fp16_master_weights_and_grads";
constexpr char kFp32States[] = "optimizer.params.fp32_optimizer_states";

/// Checks what 16-bit masters (key `path`, type `type`) require.
void check_masters(const char* path, Precision type, bool fp32_states, const Source& in,
                   const ResolvedConfig& config, Report& out) {
  const std::string name = name_of(type);
  if (config.zero.stage == 0)
    out.error(path, "it is for ZeRO stages 1, 2 and 3; the stage is 0",
              "set zero_optimization.stage, or remove it");
  if (config.precision != type)
    out.error(path,
              "the model is " + std::string(name_of(config.precision)) +
                  ": masters are fp32, or of the model's type",
              "set " + name + ".enabled to true, or remove it");
  const bool offloaded = config.offload.optimizer.device != OffloadDevice::None;
  if (fp32_states && !offloaded)
    out.error(path,
              "it needs offload_optimizer: DeepSpeed takes such masters with fp32 moments only in "
              "its CPU Adam",
              type == Precision::Bf16
                  ? "set bf16.bf16_optimizer_states, or zero_optimization.offload_optimizer.device"
                  : "set zero_optimization.offload_optimizer.device");
  const bool adam = config.optimizer.kind == OptimizerKind::Adam &&
                    !in.value<bool>("optimizer.params.torch_adam");
  if (offloaded && !adam)
    out.error(path, "with offload_optimizer it needs DeepSpeed's own Adam",
              "use AdamW without torch_adam");
  if (config.optimizer.eight_bit)
    out.unsupported(path, "AdamW in 8 bits has fp32 masters", "use adamw_torch, or remove it");
  if (descriptor_of(config.optimizer.kind).communicates)
    out.unsupported(path, "a 1-bit optimizer's masters and momenta are fp32", "use AdamW");
}

}  // namespace

void resolve_master_types(const Source& in, ResolvedConfig& config, Report& out) {
  const bool bf16 = in.value<bool>(kBf16Masters), fp16 = in.value<bool>(kFp16Masters);
  const bool bf16_states = in.value<bool>(kBf16States);
  const bool offloaded = config.offload.optimizer.device != OffloadDevice::None;
  const json* asked = in.literal(kFp32States);
  const bool own_type = asked != nullptr && !asked->get<bool>();  // false selects the masters' type
  if (bf16_states && !bf16)
    out.error(kBf16States, std::string("it needs ") + kBf16Masters, "set that too, or remove it");
  if (bf16 && fp16)
    out.error(kFp16Masters, std::string("it cannot be combined with ") + kBf16Masters,
              "remove one");
  if (bf16_states && asked != nullptr && !own_type)
    out.warning(kFp32States, std::string("no effect: ") + kBf16States + " is on", "remove it");
  if (own_type && !((bf16 || fp16) && offloaded))
    out.warning(kFp32States,
                "no effect: the moments then have the masters' type in DeepSpeed's CPU Adam, and "
                "these masters are fp32, or not offloaded",
                "remove it");
  if (!bf16 && !fp16) return;
  const Precision type = bf16 ? Precision::Bf16 : Precision::Fp16;
  const bool fp32_states = !bf16_states && !(own_type && offloaded);
  check_masters(bf16 ? kBf16Masters : kFp16Masters, type, !bf16_states, in, config, out);
  config.master_dtype = type;
  if (!fp32_states) config.state_dtype = type;
}

}  // namespace dsj::dsconfig
