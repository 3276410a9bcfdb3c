// Which files of a directory are one DeepSpeed checkpoint. Internal to engine/deepspeed, but for the questions that cli and
// engine/train ask first.
#pragma once

#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::deepspeed {

/// The files of one kind: one for each rank, or one for all. Their names follow from a rank's number, so that a rank tells
/// another one the files of a thousand in one line.
struct RankFiles {
  std::string before;  ///< in a path: up to the rank's number, or all of it where there is one file
  std::string after;   ///< behind the number; empty: there is one file
  size_t count = 0;

  std::string path(size_t rank) const {
    return after.empty() ? before : before + std::to_string(rank) + after;
  }
};

/// The files of one tag. Their number is the number of ranks that saved it.
struct Folder {
  std::string path;  ///< of the tag: ".../global_step3"
  bool universal = false;
  RankFiles models;  ///< one at stages 0 to 2
  RankFiles optims;  ///< none at stage 0 and in a universal checkpoint
};

/// Whether a directory looks like DeepSpeed's: it has `latest`, `latest_universal`, or a model_states file.
Result<bool> is_deepspeed(Files& files, const std::string& path);

/// `path`: the directory with `latest`, or one tag. `universal`: of a directory with both, take the tag of
/// `latest_universal`. BadInput: it is none, a rank's file is missing, or it is of a mechanism that is not read
/// (tensor and pipeline parallelism, experts, states on NVMe).
Result<Folder> find_folder(Files& files, const std::string& path, bool universal);

/// A folder as text for another rank, and back. The text does not grow with the number of files.
std::string to_text(const Folder& folder);
Folder folder_of_text(const std::string& text);

}  // namespace dsj::deepspeed
