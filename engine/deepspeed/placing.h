// Finds how the tensors of a checkpoint are dealt among its files, for each of DeepSpeed's layouts. Internal to
// engine/deepspeed.
#pragma once

#include "common/files/files.h"
#include "engine/deepspeed/contents.h"
#include "engine/deepspeed/folder.h"
#include "engine/deepspeed/model_states.h"

namespace dsj::deepspeed {

/// Decides the layout from the files of rank 0, and opens no other rank's: a rank's part follows from that of rank 0 and
/// from the parameters. (Universal: one file of each state.) What the files are is held against it when they are read
/// (contents.h). Environment: the files of rank 0 are not what the parameters need. BadInput: a form that is not read.
Result<Placed> place(Files& files, const Folder& folder, const SavedFile& model_file,
                     const ModelStates& model);

}  // namespace dsj::deepspeed
