// amp: the levels of NVIDIA's apex, mapped to the engine's mechanisms. O0 is fp32, O1 is autocast
// to fp16 without fp16 messages, O2 is fp16 with fp32 masters; the loss scale is apex's. DeepSpeed
// had this section until 0.19.7. Combinations that it refuses are refused with its messages.
#include <algorithm>
#include <cmath>

#include "common/text.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

constexpr char kAmp[] = "amp.enabled";
constexpr char kLevel[] = "amp.opt_level";
constexpr char kScale[] = "amp.loss_scale";
constexpr char kMaximumScale[] = "amp.max_loss_scale";

void check_company(const Source& in, const ResolvedConfig& config, Report& out) {
  if (config.precision != Precision::Fp32)
    out.error(kAmp, "Cannot enable both amp with (legacy) fp16 or bfloat16 mode",
              "keep fp16 or bf16, and switch amp off");
  if (config.zero.stage > 0)
    out.error(kAmp,
              "Amp and ZeRO are not currently compatible, please use (legacy) fp16 mode which "
              "performs similar to amp opt_mode=O2",
              "fp16.enabled or torch_autocast.enabled instead, or zero_optimization.stage 0");
  if (in.value<bool>("torch_autocast.enabled"))
    out.error(kAmp, "amp and torch_autocast are both on", "switch one off");
}

/// apex starts at 65536 or at a lower maximum, doubles after 2,000 steps without an overflow,
/// halves after each overflow, and never ends the run.
LossScaleConfig apex_scale(const Source& in, Report& out) {
  const double maximum = in.value<double>(kMaximumScale);
  LossScaleConfig scale{.initial = std::min(65536.0, maximum),
                        .window = 2000,
                        .hysteresis = 1,
                        .minimum = in.value<double>("amp.min_loss_scale", std::ldexp(1.0, -126)),
                        .maximum = maximum,
                        .like_torch = true};
  const json* given = in.literal(kScale);
  if (given == nullptr || *given == "dynamic") {
    if (maximum == 0)
      out.error(kMaximumScale, "found 0, expected a number above 0: a loss times 0 has no gradient",
                "leave it out");
    return scale;
  }
  if (given->is_number() && given->get<double>() > 0)
    scale.fixed = given->get<double>();
  else
    out.error(kScale, "found " + given->dump() + ", expected \"dynamic\" or a number above 0");
  return scale;
}

}  // namespace

void resolve_amp(const Source& in, ResolvedConfig& config, Report& out) {
  if (!in.value<bool>(kAmp)) return;
  check_company(in, config, out);
  const std::string level = in.value<std::string>(kLevel);
  if (level == "O3") {
    out.unsupported(kLevel,
                    "O3 trains fp16 weights without fp32 masters, with a loss scale of 1: updates "
                    "below a thousandth of a weight are lost, and small gradients are 0",
                    "O1 or O2");
    return;
  }
  if (level == "O0") {
    if (in.literal(kScale) != nullptr)
      out.warning(kScale, "no effect: at O0 all is fp32", "remove it");
    return;
  }
  if (level == "O1")
    config.autocast = {Precision::Fp16, {}};
  else
    config.precision = Precision::Fp16;
  config.loss_scale = apex_scale(in, out);
}

}  // namespace dsj::dsconfig
