#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

void resolve_activation_checkpointing(const Source& in, const ResolvedConfig& config, Report& out) {
  if (!config.cpu_checkpointing || in.alone) return;
  if (in.args.gradient_checkpointing.value_or(false)) return;
  // DeepSpeed's section, too, acts only on models that call its checkpointing.
  out.warning("activation_checkpointing.cpu_checkpointing",
              "it offloads the layer inputs of gradient checkpointing, which is off",
              "set training.gradientCheckpointing, or remove the key");
}

}  // namespace dsj::dsconfig
