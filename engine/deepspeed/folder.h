// Finds the files of a DeepSpeed checkpoint in a directory. Internal to engine/deepspeed, except
// for the questions that cli and engine/train ask first.
#pragma once

#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::deepspeed {

/// The files of one kind: one per rank, or one for all. Names follow from the rank's number, so
/// that one line tells another rank the names of a thousand files.
struct RankFiles {
  std::string before;  ///< the path up to the rank's number, or all of it
  std::string after;   ///< the path after the number; empty for one file
  size_t count = 0;

  std::string path(size_t rank) const {
    return after.empty() ? before : before + std::to_string(rank) + after;
  }
};

/// The files of one tag. Their number is that of the ranks that saved it.
struct Folder {
  std::string path;  ///< the tag's: ".../global_step3"
  bool universal = false;
  RankFiles models;  ///< one at stages 0 to 2
  RankFiles optims;  ///< none at stage 0 and in a universal checkpoint
};

/// Whether a directory looks like DeepSpeed's: it has `latest`, `latest_universal`, or a
/// model_states file.
Result<bool> is_deepspeed(Files& files, const std::string& path);

/// `path`: the directory with `latest`, or one tag. `universal`: if a directory has both, use the
/// tag of `latest_universal`. BadInput: not a checkpoint, a rank's file is missing, or it uses an
/// unsupported mechanism (tensor and pipeline parallelism, experts, states on NVMe).
Result<Folder> find_folder(Files& files, const std::string& path, bool universal);

/// Converts a folder to text for another rank, and back. Its size is independent of the files.
std::string to_text(const Folder& folder);
Folder folder_of_text(const std::string& text);

}  // namespace dsj::deepspeed
