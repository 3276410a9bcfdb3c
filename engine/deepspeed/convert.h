// Converts, one piece at a time, a DeepSpeed checkpoint into one of ours, or either checkpoint into
// weights. One process; needs only a buffer of memory. Called by cli.
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

/// Writes every state of every parameter and the run's state as one of our checkpoints, from which
/// a run resumes at any world size and stage if it is in the run's output directory. Frozen
/// parameters keep their values and stay frozen. Errors: BadInput if there is a checkpoint of this
/// step already; those of reading and writing.
Result<Imported> import_checkpoint(Files& files, Checkpoint& from,
                                   const std::string& checkpoints_dir);

/// Writes the fp32 values of `parameters` to DIRECTORY/model.safetensors, or to shards with an
/// index (weights::ModelWriter). Creates the directory. Errors: `from` lacks a parameter or has it
/// in another size; I/O.
Status export_fp32(Files& files, checkpoint::SavedRun& from,
                   const std::vector<Parameter>& parameters, const std::string& directory);

/// The same as DIRECTORY/pytorch_model.bin, one file, for torch.load.
Status export_torch(Files& files, checkpoint::SavedRun& from,
                    const std::vector<Parameter>& parameters, const std::string& directory);

}  // namespace dsj::deepspeed
