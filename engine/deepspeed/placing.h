// Finds how a checkpoint's tensors are distributed over its files, for each of DeepSpeed's layouts.
// Internal to engine/deepspeed.
#pragma once

#include "common/files/files.h"
#include "engine/deepspeed/contents.h"
#include "engine/deepspeed/folder.h"
#include "engine/deepspeed/model_states.h"

namespace dsj::deepspeed {

/// Determines the layout from rank 0's files only: another rank's part follows from these and from
/// the parameters. (Universal: from one file per state.) Each file is checked against it when it is
/// read (contents.h). Environment: rank 0's files do not match the parameters. BadInput:
/// unsupported.
Result<Placed> place(Files& files, const Folder& folder, const SavedFile& model_file,
                     const ModelStates& model);

}  // namespace dsj::deepspeed
