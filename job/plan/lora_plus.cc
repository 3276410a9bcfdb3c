#include "job/plan/lora_plus.h"

namespace dsj::plan {

bool has_raised_rate(const layout::Slot& slot) {
  return slot.name.find(".lora_B.") != std::string::npos || slot.shape.size() == 1;
}

std::vector<bool> raised_rates_of_flat(const layout::FlatLayout& flat,
                                       const dsconfig::ResolvedConfig& config) {
  if (config.optimizer.lora_plus_ratio == 1 || flat.frozen()) return {};
  std::vector<bool> raised;
  for (const layout::Slot& slot : flat.slots()) raised.push_back(has_raised_rate(slot));
  return raised;
}

}  // namespace dsj::plan
