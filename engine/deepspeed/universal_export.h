// Writes a checkpoint as a universal one, from which Python DeepSpeed resumes. Called by cli.
// Tested by: tests/engine/deepspeed/universal_export_test.cc; tests/oracle/check_universal.py runs DeepSpeed on it
#pragma once

#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/saved_run.h"
#include "engine/deepspeed/ranges.h"

namespace dsj::deepspeed {

struct Universal {
  std::string path;  ///< the tag's directory
  /// False for checkpoints of older versions: DeepSpeed's first step then uses the first rate.
  bool knows_learning_rate = false;
  /// The number of frozen parameters, which DeepSpeed takes from its model.
  size_t frozen = 0;
};

/// Writes what DeepSpeed 0.19 loads with `checkpoint.load_universal` at stages 1, 2 and 3 and with
/// any number of ranks: DIRECTORY/latest_universal and, under global_step<S>_universal,
/// zero/<parameter>/{fp32,exp_avg,exp_avg_sq,step}.pt, zero/optimizer_state.pt and the model file
/// under both names that the stages use. `parameters`: in the model's order. Frozen ones have no
/// folder, because DeepSpeed takes them from its model; the model file has their values if `from`
/// does, for our own reader. Of the optimizer's options only the learning rate is written;
/// ds_config sets the others. Errors: BadInput if a parameter or moment is missing or has another
/// size (only Adam-like optimizers have these moments); I/O.
Result<Universal> export_universal(Files& files, checkpoint::SavedRun& from,
                                   const std::vector<Parameter>& parameters,
                                   const std::string& directory);

}  // namespace dsj::deepspeed
