#include "engine/train/inputs/snapshot_here.h"

#include "common/cpu.h"
#include "common/host.h"

namespace dsj::train {

plan::Snapshot snapshot_here(const Inputs& inputs, const RankEnv& env, at::Device device) {
  const auto& training = inputs.job.training;
  const plan::MemoryInput memory{
      .model = inputs.model,
      .config = inputs.config(),
      .world = env.world_size,
      .tokens_per_row = plan::longest_sample(training, inputs.model),
      .recompute = training.gradient_checkpointing.value_or(false),
      .native_products = dsconfig::product_type(inputs.config()) == dsconfig::Precision::Fp32 ||
                         (dsconfig::product_type(inputs.config()) == dsconfig::Precision::Bf16 &&
                          cpu_multiplies_bf16()),
      .lora = inputs.trained,
      .accelerator = !device.is_cpu(),
      .pieces = layout::PieceRule::on(!device.is_cpu())};
  const HostMemory host = host_memory(container_memory(), machine_memory());
  return plan::plan_snapshot({.memory = memory, .ranks_per_host = env.local_world_size},
                             {.host = {host.bytes, host.from}});
}

}  // namespace dsj::train
