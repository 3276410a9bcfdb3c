// Out of one form into another, a piece at a time: a DeepSpeed checkpoint into one of ours, a checkpoint of either into
// weights. One process; nothing is held but a buffer. Called by cli.
#pragma once

#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/saved_run.h"
#include "engine/deepspeed/checkpoint.h"

namespace dsj::deepspeed {

struct Imported {
  std::string path;  ///< CHECKPOINTS_DIR/step-<S>
  int64_t bytes = 0;
};

/// Writes every state of every parameter and the run's state as one of our checkpoints: a run whose
/// output directory holds it goes on from there, at any world size and stage. Frozen parameters have
/// their values and stay frozen there. Error: BadInput, a checkpoint of this step is there already;
/// what reading and writing give.
Result<Imported> import_checkpoint(Files& files, Checkpoint& from,
                                   const std::string& checkpoints_dir);

/// Writes the fp32 values of `parameters` to DIRECTORY/model.safetensors, or to shards with an index
/// (weights::ModelWriter). Creates the directory. Error: `from` lacks one, or has it in another
/// size; I/O.
Status export_fp32(Files& files, checkpoint::SavedRun& from,
                   const std::vector<Parameter>& parameters, const std::string& directory);

/// The same as DIRECTORY/pytorch_model.bin, one file, for torch.load.
Status export_torch(Files& files, checkpoint::SavedRun& from,
                    const std::vector<Parameter>& parameters, const std::string& directory);

}  // namespace dsj::deepspeed
