// The text of a job that `dsj init` writes: a preset for a model and a data file, with comments. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dsj::cli {

struct NewJob {
  std::string preset;       ///< one of preset_names()
  std::string model, data;  ///< as the job names them
  int ranks = 1;
  int64_t positions = 0;     ///< the model's longest sequence, tokens; 0: it is not known
  bool native_bf16 = false;  ///< this CPU has units for bf16 products
  std::string file_name;     ///< of the job, for the comments
};

/// "full", "lora", "long-rows", "cpu"
std::vector<std::string> preset_names();

/// YAML. Learning rates, epochs and LoRA's rank are those of LLaMA-Factory's examples.
std::string job_text(const NewJob& job);

}  // namespace dsj::cli
