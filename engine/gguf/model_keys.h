// The keys of a GGUF file that describe the model: sizes, norms, positions, experts.
// Tested by: tests/engine/gguf/export_test.cc
#pragma once

#include <string>
#include <vector>

#include "engine/gguf/architectures.h"
#include "engine/gguf/format.h"

namespace dsj::gguf {

/// Sets the keys that begin with the architecture's name. `notes`: gets a sentence for each thing
/// in which llama.cpp differs from the model on long texts.
void set_model_keys(const layout::ModelConfig& config, const Architecture& of, Keys& keys,
                    std::vector<std::string>& notes);

/// A tensor that rope scaling adds to the file.
struct RopeTensor {
  std::string name;
  std::vector<float> values;
};
/// Divisors of the frequencies: "rope_freqs.weight" of llama3, "rope_factors_long.weight" and
/// "rope_factors_short.weight" of longrope; of other scalings none.
std::vector<RopeTensor> rope_tensors(const layout::ModelConfig& config);

/// "1.2B": the number of parameters, as llama.cpp's converter names a size. Of experts "8x7B".
std::string size_label(const layout::ModelConfig& config);

}  // namespace dsj::gguf
