// Which files of a directory are one DeepSpeed checkpoint. Internal to engine/deepspeed, but for the two questions that
// cli and engine/train ask first.
#pragma once

#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::deepspeed {

/// The files of one tag. Their number is the number of ranks that saved it.
struct Folder {
  std::string path;  ///< of the tag: ".../global_step3"
  bool universal = false;
  std::vector<std::string> model_files;  ///< by rank; one at stages 0 to 2
  std::vector<std::string> optim_files;  ///< by rank; none at stage 0 and in a universal checkpoint
};

/// Whether a directory looks like DeepSpeed's: it has `latest`, `latest_universal`, or a model_states file.
Result<bool> is_deepspeed(Files& files, const std::string& path);

/// `path`: the directory with `latest`, or one tag. `universal`: of a directory with both, take the tag of
/// `latest_universal`. BadInput: it is none, a rank's file is missing, or it is of a mechanism that is not read
/// (tensor and pipeline parallelism, experts, states on NVMe).
Result<Folder> find_folder(Files& files, const std::string& path, bool universal);

}  // namespace dsj::deepspeed
