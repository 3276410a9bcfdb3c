// Whether the files of a model hold what its config.json asks for. Headers only: no weight is read.
// The ranks ask it when they load, and `dsj` asks it before it starts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/weights/weight_source.h"
#include "job/layout/units.h"

namespace dsj::weights {

/// BadInput unless the tensor is there, in this shape and in a type that weights have.
Status check_tensor(const WeightSource& source, const std::string& name,
                    const std::vector<int64_t>& shape);

/// The same for a buffer (layout::UnitSpec), whose shape may have more dimensions of 1.
Status check_buffer(const WeightSource& source, const layout::Parameter& buffer);

/// The same for every parameter and buffer of a model, but for the adapters that LoRA adds to it. The first
/// that is wrong is the error.
Status check_tensors(const WeightSource& source, const std::vector<layout::UnitSpec>& units);

}  // namespace dsj::weights
