// torch_autocast: parameters, masters and states stay in fp32, matrix products run in 16 bits. As
// in DeepSpeed 0.19.8; combinations that its versions refuse get their messages.
#include <algorithm>
#include <array>
#include <cmath>

#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

constexpr char kAutocast[] = "torch_autocast.enabled";
constexpr char kType[] = "torch_autocast.dtype";
constexpr char kModules[] = "torch_autocast.lower_precision_safe_modules";
constexpr char kCommunication[] = "communication_data_type";

/// A module class with the names under which Python imports it.
struct Module {
  const char* name;
  const char* also;
  bool ours = true;  ///< a model here contains it
};
constexpr std::array<Module, 6> kKnown = {
    {{"torch.nn.Linear", "torch.nn.modules.linear.Linear"},
     {"torch.nn.Embedding", "torch.nn.modules.sparse.Embedding"},
     {"transformers.pytorch_utils.Conv1D", "transformers.Conv1D"},
     {"torch.nn.Conv1d", "torch.nn.modules.conv.Conv1d"},
     {"torch.nn.Conv2d", "torch.nn.modules.conv.Conv2d", false},
     {"torch.nn.Conv3d", "torch.nn.modules.conv.Conv3d", false}}};

/// DeepSpeed's list: Linear and the convolutions. Models here have only the one-dimensional one.
std::vector<std::string> safe_modules(const Source& in, Report& out) {
  const json* list = in.literal(kModules);
  if (list == nullptr) return {"torch.nn.Linear", "torch.nn.Conv1d"};
  std::vector<std::string> found;
  for (const json& entry : *list) {
    if (!entry.is_string()) {
      out.error(kModules, "found " + entry.dump() + ", expected a list of strings",
                "for example [\"torch.nn.Linear\"]");
      continue;
    }
    const std::string name = entry.get<std::string>();
    const auto known = std::ranges::find_if(
        kKnown, [&](const Module& one) { return name == one.name || name == one.also; });
    if (known == kKnown.end())
      out.unsupported(kModules,
                      "found \"" + name +
                          "\", expected torch.nn.Linear, torch.nn.Embedding, a convolution of "
                          "torch.nn or transformers.pytorch_utils.Conv1D: other modules of these "
                          "models are norms, which are always sent in fp32 here",
                      "leave it out");
    else if (known->ours && std::ranges::find(found, known->name) == found.end())
      found.push_back(known->name);
  }
  return found;
}

/// torch.amp.GradScaler's numbers. Below fp32's smallest normal number, its scale would be 0.
LossScaleConfig grad_scaler() {
  return {.window = 2000, .hysteresis = 1, .minimum = std::ldexp(1.0, -126), .like_torch = true};
}

/// A 16-bit model under torch.autocast, which DeepSpeed accepts since 0.18. In bf16, products and
/// messages have the parameters' type already, so autocast changes nothing. Other pairs would
/// multiply in a third type or have two loss scales.
void check_model_type(Precision products, ResolvedConfig& config, Report& out) {
  if (config.precision == Precision::Bf16 && products == Precision::Bf16) {
    if (config.zero.stage > 0 && config.communication_dtype != Precision::Bf16) {
      config.communication_dtype = Precision::Bf16;
      out.warning(kCommunication,
                  "no effect at ZeRO stages 1 to 3 with torch_autocast: gradients are sent in bf16",
                  "remove it");
    }
    out.warning(kAutocast,
                "no effect: bf16 is on, so products, gradients and parameters are bf16 already",
                "see docs/precision.md");
    return;
  }
  out.unsupported(kAutocast,
                  std::string("autocast to ") + name_of(products) + " of a model in " +
                      name_of(config.precision) + " is not built",
                  std::string("switch ") + name_of(config.precision) +
                      ".enabled off, or autocast (DeepSpeed before 0.18 refuses both together)");
}

void check_communication(ResolvedConfig& config, Report& out) {
  if (config.zero.stage == 0 || config.communication_dtype == Precision::Fp32) return;
  config.communication_dtype = Precision::Fp32;
  out.warning(kCommunication,
              "no effect at ZeRO stages 1 to 3 with torch_autocast: gradients of its safe modules "
              "are sent in its dtype, others in fp32",
              "remove it, or see torch_autocast.lower_precision_safe_modules");
}

}  // namespace

void resolve_autocast(const Source& in, ResolvedConfig& config, Report& out) {
  const bool asked = in.value<bool>(kAutocast);
  if ((asked || config.autocast.on()) && descriptor_of(config.optimizer.kind).communicates)
    out.unsupported(asked ? kAutocast : "amp.enabled",
                    "products in another type than the parameters are not built for 1-bit "
                    "optimizers, which send momenta instead of gradients",
                    "use bf16 or fp16, or AdamW");
  if (!asked) return;
  const json* type = in.literal(kType);
  if (type == nullptr) {
    out.error(kType, "torch_autocast needs it: there is no default in DeepSpeed",
              "\"bfloat16\" or \"float16\"");
    return;
  }
  const std::string name = type->get<std::string>();  // one of the row's choices
  const bool bf16 = name.find("bf") != std::string::npos;
  const bool half = name == "half" || name.find("16") != std::string::npos;
  if (config.precision != Precision::Fp32)
    return check_model_type(half ? (bf16 ? Precision::Bf16 : Precision::Fp16) : Precision::Fp32,
                            config, out);
  check_communication(config, out);
  if (!half) {
    out.warning(kType, "no effect: products stay fp32", "\"bfloat16\" or \"float16\"");
    return;
  }
  config.autocast = {bf16 ? Precision::Bf16 : Precision::Fp16, safe_modules(in, out)};
  if (!bf16) config.loss_scale = grad_scaler();
}

}  // namespace dsj::dsconfig
