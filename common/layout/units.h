// A model as an ordered list of units (embedding, one per decoder layer, head) with their
// parameters. Torch-free: the memory model counts with it, the engine builds from it, weights
// reader and exporter name tensors by it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layout/model_config.h"

namespace dsj::layout {

struct Parameter {
  std::string name;  ///< as in the Hugging Face checkpoint
  std::vector<int64_t> shape;
  int64_t numel() const;
};

struct UnitSpec {
  std::string name;  ///< "embedding", "layer 3", "head"
  std::vector<Parameter> parameters;
  bool uses_embedding = false;  ///< the head of a tied model borrows the embedding's weight
};

/// Units in forward order. Parameters that one matrix product can serve are neighbours (q, k, v
/// weights; q, k, v biases; gate and up): one view spans them, without a copy.
std::vector<UnitSpec> units_of(const ModelConfig& config);

/// Elements, tied weights once.
int64_t total_numel(const std::vector<UnitSpec>& units);

}  // namespace dsj::layout
