// The keys of a GGUF file that describe the model: sizes, norms, positions, experts.
// Tested by: tests/engine/gguf/export_test.cc
#pragma once

#include <string>
#include <vector>

#include "engine/gguf/architectures.h"
#include "engine/gguf/format.h"

namespace dsj::gguf {

/// Sets the keys that begin with the architecture's name. Adds to `notes` how llama.cpp differs
/// from the model on long texts.
void set_model_keys(const layout::ModelConfig& config, const Architecture& of, Keys& keys,
                    std::vector<std::string>& notes);

/// An additional tensor of the file for rope scaling.
struct RopeTensor {
  std::string name;
  std::vector<float> values;
};
/// Divisors of the frequencies: "rope_freqs.weight" for llama3, "rope_factors_long.weight" and
/// "rope_factors_short.weight" for longrope; none for other scalings.
std::vector<RopeTensor> rope_tensors(const layout::ModelConfig& config);

/// "1.2B": the number of parameters, as in llama.cpp's converter; "8x7B" for experts.
std::string size_label(const layout::ModelConfig& config);

}  // namespace dsj::gguf
