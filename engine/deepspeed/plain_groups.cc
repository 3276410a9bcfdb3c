#include "engine/deepspeed/plain_groups.h"

namespace dsj::deepspeed {
namespace {

using Groups = std::vector<std::vector<size_t>>;

bool fits_flat(const Groups& groups, const std::vector<Parameter>& parameters,
               const OptimStates& optim) {
  for (size_t g = 0; g < groups.size(); ++g) {
    int64_t elements = 0;
    for (const size_t index : groups[g]) elements += parameters[index].elements;
    const auto master = optim.updated[g].states.find("master");
    if (master == optim.updated[g].states.end() || master->second.elements != elements)
      return false;
  }
  return true;
}

bool fits_each(const Groups& groups, const std::vector<Parameter>& parameters,
               const OptimStates& optim) {
  size_t next = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const size_t index : groups[g]) {
      if (next == optim.updated.size() || optim.group_of[next] != g) return false;
      for (const auto& [state, tensor] : optim.updated[next].states)
        if (tensor.shape != parameters[index].shape) return false;
      ++next;
    }
  }
  return next == optim.updated.size();
}

}  // namespace

Result<Groups> plain_groups(const std::vector<Parameter>& parameters, const OptimStates& optim,
                            bool fused, const std::string& path) {
  const size_t count = optim.groups.size();
  for (const bool matrices_first : {true, false}) {
    if (count == 0 || count > 2) break;
    Groups groups(count);
    for (size_t i = 0; i < parameters.size(); ++i)
      groups[count == 2 && (parameters[i].shape.size() >= 2) != matrices_first].push_back(i);
    if (fused ? fits_flat(groups, parameters, optim) : fits_each(groups, parameters, optim))
      return groups;
  }
  return bad_input("its " + std::to_string(count) +
                       " param groups cannot be told apart: a checkpoint without ZeRO does not "
                       "name their parameters",
                   path, "save it with ZeRO stage 1");
}

}  // namespace dsj::deepspeed
