// ZeRO's limits beyond their rows: the defaults that depend on the stage, and a bucket of 0.
#include "job/dsconfig/parts.h"

namespace dsj::dsconfig {

void resolve_zero(const Source& in, ResolvedConfig& config, Report& out) {
  ZeroConfig& zero = config.zero;
  apply_hidden_size(in, config, out);
  zero.overlap_comm = in.value("zero_optimization.overlap_comm", zero.stage == 3);
  // DeepSpeed 0.13 accepts a bucket of 0 (each tensor on its own), 0.19 does not.
  constexpr int64_t kSmallBucket = 1'000'000;
  for (auto [name, bucket] : {std::pair{"reduce_bucket_size", &zero.reduce_bucket_size},
                              std::pair{"allgather_bucket_size", &zero.allgather_bucket_size}}) {
    if (*bucket > 0) continue;
    *bucket = kSmallBucket;
    out.warning(std::string("zero_optimization.") + name,
                "0 is read as " + std::to_string(kSmallBucket),
                "write the number of elements you want");
  }
}

}  // namespace dsj::dsconfig
