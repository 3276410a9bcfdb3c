// A run's checkpoints and exported model: which one to load, and what the run's own state is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/train/events.h"
#include "engine/train/inputs.h"
#include "engine/train/step.h"

namespace dsj::train {

/// Where a run stands between two steps.
struct Progress {
  int64_t step = 0;     ///< optimizer steps done, skipped ones included
  int64_t skipped = 0;  ///< of these
};

/// The loss scaler in a checkpoint's run state (key "loss_scaler").
nlohmann::json to_json(const optim::LossScaler::State& state);
optim::LossScaler::State loss_scaler_state(const nlohmann::json& saved);

class Saver {
 public:
  Saver(Files& files, const Inputs& inputs, zero::ModelState& state, Stepper& stepper,
        const Events& events, at::Device device);

  /// Loads the checkpoint that the arguments name, else the newest of the output directory, else
  /// the model's weights. Collective.
  Result<Progress> load();
  /// Writes and publishes a checkpoint of `progress`. Collective: all ranks succeed or all fail.
  Status save(const Progress& progress);
  /// Writes OUT/model: the model, or with LoRA the adapters in PEFT's layout. Collective.
  Status export_model();

 private:
  Status check_lora(const checkpoint::Reader& reader) const;
  Status restore(checkpoint::Reader& reader, Progress& progress);
  nlohmann::json run_state(const Progress& progress) const;
  void warn_of_differences(const nlohmann::json& saved) const;
  /// Turns all ranks' verdicts into one. Error: this rank's own failure, or "another rank failed".
  Status agree(const Status& mine);

  Files& files_;
  const Inputs& in_;
  zero::ModelState& state_;
  Stepper& stepper_;
  const Events& events_;
  const at::Device device_;
  const std::string checkpoints_;
};

}  // namespace dsj::train
