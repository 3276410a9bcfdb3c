// torch_autocast in bytes: which flats are sent in the products' type, and which weights a product
// copies because they are wider or packed. The engine (engine/zero, engine/models/gemm) and the
// memory model use it. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "job/dsconfig/config/resolved.h"
#include "job/layout/partition.h"
#include "job/plan/safe_modules.h"

namespace dsj::plan {

/// The types of a flat that torch_autocast changes if ranks shard.
struct FlatTypes {
  dsconfig::Precision gathered;  ///< of the copy that is gathered for use
  dsconfig::Precision wire;      ///< of gradients when sent
};
FlatTypes types_of_flat(const std::vector<layout::UnitSpec>& units, const layout::FlatLayout& flat,
                        const dsconfig::ResolvedConfig& config, int world);

/// The most bytes of copies of a unit's weights in the products' type at a time: of packed weights
/// and, with autocast, of weights that are gathered in another type.
int64_t weight_copies(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
                      const dsconfig::ResolvedConfig& config, int world, int unit);

/// Elements of a unit's largest packed weight; 0 if it has none.
int64_t largest_packed(const std::vector<layout::UnitSpec>& units, int unit);

/// Elements of the largest gradient that one product of a unit writes; neighbours share a product.
int64_t largest_gradient(const std::vector<layout::UnitSpec>& units, int unit);

}  // namespace dsj::plan
