// Writes the job file of `dsj init`: a preset for a model and a data file, with comments. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dsj::cli {

struct NewJob {
  std::string preset;       ///< one of preset_names()
  std::string model, data;  ///< as written in the job
  int ranks = 1;
  int64_t positions = 0;     ///< the model's longest sequence in tokens; 0 if unknown
  bool native_bf16 = false;  ///< this CPU has units for bf16 products
  std::string file_name;     ///< the job's file name, for the comments
};

/// "full", "lora", "long-rows", "cpu"
std::vector<std::string> preset_names();

/// Returns YAML. Learning rates, epochs and LoRA's rank follow LLaMA-Factory's examples.
std::string job_text(const NewJob& job);

}  // namespace dsj::cli
