// A run's saved state, read by ranges of elements at any world size: a checkpoint of ours
// (reader.h) or of DeepSpeed (engine/deepspeed). engine/zero reads the tensors, engine/train the
// rest.
// Tested by: tests/engine/checkpoint/checkpoint_test.cc, tests/engine/deepspeed/checkpoint_test.cc
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "common/result.h"

namespace dsj::checkpoint {

/// One thread at a time.
class SavedRun {
 public:
  virtual ~SavedRun() = default;
  /// The checkpoint's own directory.
  virtual const std::string& path() const = 0;
  /// Finished optimizer steps, including skipped ones.
  virtual int64_t step() const = 0;
  /// What a resume needs: skipped steps, updates, loss scaler, settings (engine/train/state/saving.cc).
  virtual const nlohmann::json& run_state() const = 0;
  /// The size of a tensor: a state ("master", "exp_avg" ...) of a parameter; or nullopt.
  virtual std::optional<int64_t> elements(const std::string& state,
                                          const std::string& param) const = 0;
  /// Reads elements [offset, offset + out.size()). BadInput: no such tensor, or a range outside it.
  /// Environment, with the file: it is damaged or cannot be read.
  virtual Status read(const std::string& state, const std::string& param, int64_t offset,
                      std::span<float> out) = 0;
};

/// Whether the saved run made no update. Optimizer states are then initial, and DeepSpeed's
/// checkpoints have none: torch creates them at the first update. (In fp16 all steps may be
/// skipped.)
inline bool never_updated(const SavedRun& saved) {
  const nlohmann::json& run = saved.run_state();
  return run.is_object() && run.value("updates", int64_t{-1}) == 0;
}

}  // namespace dsj::checkpoint
