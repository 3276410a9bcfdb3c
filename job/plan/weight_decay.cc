#include "job/plan/weight_decay.h"

#include <algorithm>
#include <cctype>

namespace dsj::plan {

bool is_decayed(const std::string& parameter) {
  std::string name = parameter;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const char* inside : {"bias", "layernorm", "rmsnorm"})
    if (name.find(inside) != std::string::npos) return false;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    if (part == "norm" || part.ends_with("_norm")) return false;
    if (part.starts_with("ln_")) return false;  // an nn.LayerNorm of GPT-2 and Falcon
    begin = end + 1;
  }
  return true;
}

std::vector<bool> decays_of_flat(const layout::FlatLayout& flat,
                                 const dsconfig::ResolvedConfig& config) {
  const auto& optimizer = config.optimizer;
  if (optimizer.decays_all || optimizer.weight_decay == 0 || flat.frozen()) return {};
  std::vector<bool> decays;
  for (const layout::Slot& slot : flat.slots()) decays.push_back(is_decayed(slot.name));
  return decays;
}

}  // namespace dsj::plan
