// A checkpoint as DeepSpeed's universal one, with which a run of Python DeepSpeed goes on. Called by cli.
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
  /// false, of checkpoints of older programs: DeepSpeed's first step takes the first rate of its schedule.
  bool knows_learning_rate = false;
  /// Parameters that were frozen: DeepSpeed takes them from the model that it is given.
  size_t frozen = 0;
};

/// Writes what DeepSpeed 0.19 loads with `checkpoint.load_universal` at stages 1, 2 and 3 and at any number of ranks:
/// DIRECTORY/latest_universal and, under global_step<S>_universal, zero/<parameter>/{fp32,exp_avg,exp_avg_sq,step}.pt,
/// zero/optimizer_state.pt and the model file under both names that the stages look for. `parameters` are in the model's
/// order. Those that were frozen have no folder: DeepSpeed takes them from the model that it is given. The model file has
/// their values where `from` does, for our own reader. The optimizer's options but the learning rate are left to the run's
/// ds_config. Error: BadInput, a parameter or a moment is not in it, or has another size (only Adam's forms have these
/// moments); I/O.
Result<Universal> export_universal(Files& files, checkpoint::SavedRun& from,
                                   const std::vector<Parameter>& parameters,
                                   const std::string& directory);

}  // namespace dsj::deepspeed
