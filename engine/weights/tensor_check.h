// Checks that a model's files have the tensors that its config.json requires. Reads headers only.
// Used by ranks when they load, and by `dsj` before it starts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/weights/weight_source.h"
#include "job/layout/units.h"

namespace dsj::weights {

/// BadInput unless the tensor exists with this shape and a type of weights.
Status check_tensor(const WeightSource& source, const std::string& name,
                    const std::vector<int64_t>& shape);

/// The same for a buffer (layout::UnitSpec), whose shape may have more dimensions of 1.
Status check_buffer(const WeightSource& source, const layout::Parameter& buffer);

/// The same for every parameter and buffer of a model, except LoRA's adapters. Returns the first
/// error.
Status check_tensors(const WeightSource& source, const std::vector<layout::UnitSpec>& units);

}  // namespace dsj::weights
