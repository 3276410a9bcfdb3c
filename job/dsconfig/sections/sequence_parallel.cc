// Rows that are cut over ranks (sequence_parallel_size): the world sizes that it fits, and its
// conflicts.
#include "job/dsconfig/config/batch.h"
#include "job/dsconfig/config/objective.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {
namespace {

constexpr char kLeaveOut[] = "leave one of the two out";

bool is_one_bit(OptimizerKind kind) {
  return kind == OptimizerKind::OneBitAdam || kind == OptimizerKind::OneBitLamb ||
         kind == OptimizerKind::ZeroOneAdam;
}

void check_world(const Source& in, const ResolvedConfig& config, Report& out) {
  const int64_t size = config.sequence_parallel_size, world = in.facts.world_size;
  if (in.alone || world % size == 0) return;
  out.error(kSequenceKey,
            "it is " + std::to_string(size) + ", but there " +
                (world == 1 ? "is 1 rank" : "are " + std::to_string(world) + " ranks") +
                ": the world is not a multiple of it",
            "set it to a divisor of the world size: at most the ranks of a node");
}

}  // namespace

void check_sequence_parallel(const Source& in, const ResolvedConfig& config, Report& out) {
  if (config.sequence_parallel_size <= 1) return;
  check_world(in, config, out);
  const auto refuse = [&](bool used, const std::string& what) {
    if (used)
      out.unsupported(kSequenceKey,
                      "rows cut over ranks are not built for " + what + ", which is on", kLeaveOut);
  };
  const Objective objective = objective_of(in.args);
  refuse(objective.judges(), "training.objective " + name_of(objective.kind));
  refuse(in.value<bool>("elasticity.enabled"), "elasticity");
  refuse(config.data_efficiency.random_ltd.has_value(), "data_efficiency.data_routing.random_ltd");
  refuse(config.sparse_gradients, "sparse_gradients");
  refuse(is_one_bit(config.optimizer.kind), "1-bit optimizers (optimizer.type)");
  refuse(!config.averaging.mean, "gradient_allreduce_op sum");
  refuse(config.observe.flops.enabled, "flops_profiler");
}

}  // namespace dsj::dsconfig
