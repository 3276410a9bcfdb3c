// Checks that a model's files have the tensors that its config.json requires. All but check_tied_head
// read headers only. Used by ranks when they load, and by `dsj` before it starts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/weights/weight_source.h"
#include "job/layout/lora.h"
#include "job/layout/shape/model_shape.h"
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

/// Names the weights that no unit has, so that nothing reads them, such as biases that config.json
/// switches off or layers beyond its number of layers; empty if there are none. Leaves out buffers
/// (inverse frequencies, causal masks), and all if the model is the text part of a larger one, whose
/// other parts are kept.
std::string unread_tensors(const WeightSource& source, const layout::ModelConfig& model);

/// BadInput if a tied model's files have an output layer with other values than the embedding: one of
/// the two would be ignored. Reads the rows of one of `parts` equal parts of both.
Status check_tied_head(const WeightSource& source, const layout::ModelConfig& model, int part,
                       int parts);

/// BadInput unless an adapter's two copies of a tied weight (layout::tied_pair) are equal.
Status check_tied_copies(const WeightSource& adapter, const layout::TiedPair& tied);

}  // namespace dsj::weights
