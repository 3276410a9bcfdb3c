#include "engine/train/inputs/out_of_memory.h"

namespace dsj::train {

plan::FitInput fit_input(const Inputs& in, const RankEnv& env) {
  const TrainingArgs& training = in.job.training;
  return {.memory = {.model = in.model,
                     .config = in.config(),
                     .world = env.world_size,
                     .tokens_per_row = plan::longest_sample(training, in.model),
                     .recompute = training.gradient_checkpointing.value_or(false),
                     .native_products = true,
                     .lora = in.trained,
                     .accelerator = true,
                     .pieces = layout::PieceRule::on(true)},
          .ranks_per_host = env.local_world_size};
}

Error out_of_device_memory(const std::optional<memory::Shortage>& shortage, const std::string& what,
                           const std::optional<plan::FitInput>& plan) {
  constexpr char kUsual[] =
      "a smaller train_micro_batch_size_per_gpu, training.gradientCheckpointing, or a higher "
      "zero_optimization.stage";
  if (!shortage) return {ErrorKind::Environment, "out of GPU memory: " + what, {}, kUsual};
  const std::string message =
      std::string("out of GPU memory: ") + memory::name_of(shortage->klass) + " asked for " +
      plan::show_bytes(shortage->wanted) + ", " + plan::show_bytes(shortage->left) + " of " +
      plan::show_bytes(shortage->all) + " are free";
  if (!plan) return {ErrorKind::Environment, message, {}, kUsual};
  const plan::Limits limits{.device = {shortage->all, "the GPU"}};
  for (const plan::Misfit& misfit : plan::check_fit(*plan, limits)) {
    if (!misfit.remedy.empty())
      return {ErrorKind::Environment, message, {}, "dsj plan: " + misfit.remedy};
  }
  return {
      ErrorKind::Environment,
      message,
      {},
      "dsj plan finds that the run fits into this GPU alone: end other processes on it, or take " +
          std::string(kUsual)};
}

}  // namespace dsj::train
