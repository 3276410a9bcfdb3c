#include "job/plan/muon_plan.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace dsj::plan {

using dsconfig::ResolvedConfig;

bool is_muon(const ResolvedConfig& config) {
  return config.optimizer.kind == dsconfig::OptimizerKind::Muon;
}

bool is_orthogonalised(const layout::Parameter& parameter) {
  if (parameter.frozen || parameter.shape.size() < 2) return false;
  std::string name = parameter.name;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find("embed") == std::string::npos && name.find("lm_head") == std::string::npos;
}

bool is_orthogonalised(const layout::FlatLayout& flat, const ResolvedConfig& config) {
  if (!is_muon(config) || flat.frozen()) return false;
  const layout::Slot& some = flat.slots().front();
  return is_orthogonalised(layout::Parameter{some.name, some.shape});
}

Status check_muon(const std::vector<layout::UnitSpec>& units, const ResolvedConfig& config) {
  if (!is_muon(config)) return {};
  for (const auto& unit : units) {
    for (const auto& parameter : unit.parameters)
      if (is_orthogonalised(parameter) && parameter.shape.size() > 2)
        return bad_input("Muon is not built for " +
                             std::string(parameter.routed ? "experts that share one tensor ("
                                                          : "convolutions (") +
                             parameter.name + ")",
                         "optimizer.type", "AdamW, or another optimizer of docs/optimizers.md");
  }
  return {};
}

namespace {

/// Elements that are alive at a time while a matrix [n, m], n <= m, is orthogonalized, including a
/// few scalars.
int64_t iteration_elements(const layout::Slot& slot, dsconfig::NewtonSchulz method) {
  constexpr int64_t kSingle = 16;
  const int64_t n = std::ranges::min(slot.shape), m = slot.numel / n;
  if (method == dsconfig::NewtonSchulz::Gram && n < m)
    return std::max(n * m + 6 * n * n, 2 * n * m + 3 * n * n) + kSingle;
  return std::max(n * m + 5 * n * n, 4 * n * m + 2 * n * n) + kSingle;
}

}  // namespace

int64_t muon_scratch(const layout::FlatPlan& plan, const ResolvedConfig& config) {
  int64_t most = 0;
  for (const auto& flat : plan.flats) {
    if (!is_orthogonalised(flat, config)) continue;
    int64_t iteration = 0;
    for (const auto& slot : flat.slots())
      iteration = std::max(iteration, iteration_elements(slot, config.muon.ns_method));
    // The exchange ends before a matrix is processed, and starts again after the last one.
    most = std::max(most,
                    flat.numel() + std::max(iteration, flat.world() > 1 ? flat.shard_numel() : 0));
  }
  return 4 * most;
}

int64_t muon_elements(const layout::FlatPlan& plan, const ResolvedConfig& config) {
  int64_t all = 0;
  for (const auto& flat : plan.flats)
    if (is_orthogonalised(flat, config)) all += 2 * flat.shard_numel() * (flat.world() - 1);
  return all;
}

}  // namespace dsj::plan
