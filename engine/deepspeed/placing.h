// Fills in where each tensor of a checkpoint lies, for each of DeepSpeed's layouts. Internal to engine/deepspeed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "engine/deepspeed/folder.h"
#include "engine/deepspeed/model_states.h"
#include "engine/deepspeed/optim_states.h"
#include "engine/deepspeed/ranges.h"

namespace dsj::deepspeed {

/// What placing finds: `paths` are the files, which stretches name by their index.
struct Placed {
  OptimStates optim;  ///< of rank 0
  std::vector<Parameter> trained, frozen;
  Ranges ranges;
  std::vector<std::string> paths;
};

/// Reads the optimizer's files and decides the layout from them. Environment: the parts are not what the parameters
/// need. BadInput: a form that is not read.
Result<Placed> place(Files& files, const Folder& folder, const SavedFile& model_file,
                     const ModelStates& model);

}  // namespace dsj::deepspeed
