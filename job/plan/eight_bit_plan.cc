#include "job/plan/eight_bit_plan.h"

#include <algorithm>

#include "job/plan/safe_modules.h"

namespace dsj::plan {

using dsconfig::ResolvedConfig;

bool has_eight_bits(const layout::Slot& parameter) {
  return parameter.numel >= kEightBitLeast && module_class(parameter.name) != "torch.nn.Embedding";
}

int64_t eight_bit_bytes(const layout::FlatPlan& plan, const ResolvedConfig& config) {
  if (!config.optimizer.eight_bit) return 0;
  int64_t most = 0;
  for (int rank = 0; rank < plan.flats.front().world(); ++rank) {
    int64_t own = 0;
    for (const auto& flat : plan.flats) {
      if (flat.frozen()) continue;
      for (const auto& range : flat.ranges(rank)) {
        const bool packed = has_eight_bits(flat.slots()[static_cast<size_t>(range.slot)]);
        own += 2 * (packed ? range.numel + 4 * eight_bit_blocks(range.numel) : 4 * range.numel);
      }
    }
    most = std::max(most, own);
  }
  return most;
}

int64_t eight_bit_scratch(const layout::FlatPlan& plan, const ResolvedConfig& config,
                          bool accelerator) {
  if (!config.optimizer.eight_bit) return 0;
  int64_t longest = 0;
  for (const auto& flat : plan.flats)
    for (const auto& slot : flat.slots())
      if (!flat.frozen() && has_eight_bits(slot))
        longest = std::max(longest, std::min(slot.numel, flat.shard_numel()));
  // Both moments; on an accelerator also a normalized one, its absolute values or its 32-bit codes.
  return (accelerator ? 20 : 8) * std::min(longest, kEightBitPiece);
}

int64_t eight_bit_saved(const layout::FlatLayout& flat, const ResolvedConfig& config) {
  if (!config.optimizer.eight_bit || flat.frozen()) return 0;
  int64_t all = 0;
  for (const auto& slot : flat.slots())
    all += 2 * (slot.numel + (has_eight_bits(slot) ? eight_bit_blocks(slot.numel) : 0));
  return all;
}

}  // namespace dsj::plan
