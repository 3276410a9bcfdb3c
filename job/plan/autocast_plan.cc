#include "job/plan/autocast_plan.h"

#include <algorithm>
#include <map>

#include "job/plan/zero_plan.h"

namespace dsj::plan {

using dsconfig::ResolvedConfig;

namespace {

/// Parameters with the same result share a product, which reads them as one copy.
std::string product_of(const std::string& name) {
  if (name.contains("lora_")) return "adapters";
  if (const size_t expert = name.find(".experts.");
      expert != std::string::npos)  // one after another
    return name.substr(0, name.find('.', expert + std::string_view(".experts.").size()));
  for (const char* part : {"q_proj", "k_proj", "v_proj"})
    if (name.contains(part)) return "qkv";
  for (const char* part : {"gate_proj", "up_proj", ".w1.", ".w3."})
    if (name.contains(part)) return "gate_up";
  if (name.contains(".in_proj_")) return "in_proj";
  return name.substr(0, name.rfind('.'));
}

}  // namespace

FlatTypes types_of_flat(const std::vector<layout::UnitSpec>& units, const layout::FlatLayout& flat,
                        const ResolvedConfig& config, int world) {
  const bool tied = is_tied(units);
  const bool low = effective_stage(config, world).shards_update() &&
                   std::ranges::all_of(flat.slots(), [&](const layout::Slot& slot) {
                     return is_safe(slot.name, tied, config);
                   });
  if (low) return {config.autocast.products, config.autocast.products};
  return {config.precision, config.communication_dtype};
}

int64_t weight_copies(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
                      const ResolvedConfig& config, int world, int unit) {
  const layout::Stage& stage = effective_stage(config, world);
  std::map<std::string, int64_t> copies;  // bytes per product
  const auto add = [&](int of, const layout::Parameter& parameter, size_t index) {
    if (parameter.packing != layout::Packing::None) {
      copies[product_of(parameter.name)] += bytes_of(product_type(config)) * parameter.numel();
      return;
    }
    if (!config.autocast.on()) return;
    const auto place = plan.places[static_cast<size_t>(of)][index];
    const bool gathered =
        layout::stage_of_flat(stage, plan.is_persisted(place.flat)).shards_parameters();
    const auto& flat = plan.flats[static_cast<size_t>(place.flat)];
    if (gathered && types_of_flat(units, flat, config, world).gathered == config.autocast.products)
      return;
    copies[product_of(parameter.name)] += bytes_of(config.autocast.products) * parameter.numel();
  };
  const layout::UnitSpec& spec = units[static_cast<size_t>(unit)];
  for (size_t i = 0; i < spec.parameters.size(); ++i)
    if (enters_products(spec.parameters[i].name)) add(unit, spec.parameters[i], i);
  if (spec.uses_embedding) add(0, units.front().parameters.front(), 0);
  int64_t most = 0;
  for (const auto& [product, bytes] : copies) most = std::max(most, bytes);
  return most;
}

int64_t largest_packed(const std::vector<layout::UnitSpec>& units, int unit) {
  int64_t most = 0;
  for (const auto& parameter : units[static_cast<size_t>(unit)].parameters)
    if (parameter.packing != layout::Packing::None) most = std::max(most, parameter.numel());
  return most;
}

int64_t largest_gradient(const std::vector<layout::UnitSpec>& units, int unit) {
  std::map<std::string, int64_t> elements;  // per product
  const layout::UnitSpec& spec = units[static_cast<size_t>(unit)];
  for (const auto& parameter : spec.parameters)
    if (!parameter.frozen) elements[product_of(parameter.name)] += parameter.numel();
  int64_t most = spec.uses_embedding ? units.front().parameters.front().numel() : 0;
  for (const auto& [product, count] : elements) most = std::max(most, count);
  return most;
}

}  // namespace dsj::plan
