// torch_autocast in bytes: which flats travel in the products' type, and what a product copies of
// weights that are wider, or packed. The engine (engine/zero, engine/models/gemm) and the memory model
// go by it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "job/dsconfig/resolved.h"
#include "job/layout/partition.h"
#include "job/plan/safe_modules.h"

namespace dsj::plan {

/// The types of a flat that differ from the config's where torch_autocast is on and ranks shard.
struct FlatTypes {
  dsconfig::Precision gathered;  ///< of the copy that a gather around use makes
  dsconfig::Precision wire;      ///< of gradients
};
FlatTypes types_of_flat(const std::vector<layout::UnitSpec>& units, const layout::FlatLayout& flat,
                        const dsconfig::ResolvedConfig& config, int world);

/// Bytes of the copies of a unit's weights in the products' type that live at a time, at most: of
/// packed weights, and under autocast of those that are not gathered in that type.
int64_t weight_copies(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
                      const dsconfig::ResolvedConfig& config, int world, int unit);

/// Elements of a unit's largest packed weight; 0: it has none.
int64_t largest_packed(const std::vector<layout::UnitSpec>& units, int unit);

/// Elements of the largest gradient that one product of a unit writes: neighbours share a product.
int64_t largest_gradient(const std::vector<layout::UnitSpec>& units, int unit);

}  // namespace dsj::plan
