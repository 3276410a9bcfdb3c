// ZeRO's limits that the table's rows cannot express: defaults that depend on the stage, a bucket
// of 0, and groups of ranks.
#include <vector>

#include "job/dsconfig/config/group_sizes.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {
namespace {

/// Refuses groups that do not divide the world; filters elasticity's world sizes in the same way.
void resolve_groups(const Source& in, ResolvedConfig& config, Report& out) {
  const auto group = group_size(config.zero);
  if (!group) return;
  const std::string key = group->path.substr(group->path.rfind('.') + 1);
  const std::string size = std::to_string(group->ranks);
  if (config.zero.hpz_partition_size > 1 && config.zero.mics_shard_size > 0)
    out.error(group->path, "it cannot be combined with mics_shard_size",
              "leave out one of them: mics_shard_size keeps everything within a group already");
  std::vector<int64_t>& sizes = config.elastic_world_sizes;
  const bool elastic = !sizes.empty();
  std::erase_if(sizes, [&](int64_t world) { return !fits_groups(config.zero, world); });
  if (elastic && sizes.empty())
    out.error(group->path, "no world size of elasticity is divisible by " + size,
              "set it to a divisor of the ranks");
  if (in.alone) return;
  const int64_t world = in.facts.world_size;
  const std::string ranks = std::to_string(world);
  if (group->ranks > world && fits_groups(config.zero, world))
    out.warning(group->path, key + " is " + size + ", but there " +
                                 (world == 1 ? "is 1 rank" : "are " + ranks + " ranks") +
                                 ": they are one group, which is stage 3 without hpZ");
  else if (group->ranks > world)
    out.error(group->path,
              key + " is " + size + ", but there " +
                  (world == 1 ? "is 1 rank" : "are " + ranks + " ranks"),
              "set it to the ranks of a node, or leave it out");
  else if (world % group->ranks != 0)
    out.error(group->path, "the world size " + ranks + " is not divisible by " + size,
              "set it to a divisor of the world size: the ranks of a node");
}

}  // namespace

void resolve_zero(const Source& in, ResolvedConfig& config, Report& out) {
  ZeroConfig& zero = config.zero;
  apply_hidden_size(in, config, out);
  zero.overlap_comm = in.value("zero_optimization.overlap_comm", zero.stage == 3);
  // DeepSpeed 0.13 accepts a bucket of 0 (each tensor separately), 0.19 does not.
  constexpr int64_t kSmallBucket = 1'000'000;
  for (auto [name, bucket] : {std::pair{"reduce_bucket_size", &zero.reduce_bucket_size},
                              std::pair{"allgather_bucket_size", &zero.allgather_bucket_size}}) {
    if (*bucket > 0) continue;
    *bucket = kSmallBucket;
    out.warning(std::string("zero_optimization.") + name,
                "0 is read as " + std::to_string(kSmallBucket),
                "write the number of elements you want");
  }
  resolve_groups(in, config, out);
  if (zero.stage == 3 && zero.quantized_gradients && zero.mics_shard_size > 0)
    out.error("zero_optimization.zero_quantized_gradients",
              "it cannot be combined with mics_shard_size",
              "leave out one of them: MiCS reduces gradients within its groups already");
}

}  // namespace dsj::dsconfig
