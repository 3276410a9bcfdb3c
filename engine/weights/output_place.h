// Checks whether a run would overwrite its inputs or foreign files in its output directory. The
// same rule for `dsj validate`, `dsj plan`, `dsj run`, and for ranks, whose jobs an operator may
// have started: OUT/model is replaced at the end of the run, checkpoints are removed, two files
// rewritten.
// Tested by: tests/engine/weights/output_place_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "job/training_args.h"

namespace dsj::weights {

/// Resolves paths: a port, for tests without links and mounts.
class PathPlaces {
 public:
  virtual ~PathPlaces() = default;
  /// Absolute, without "..", with links resolved as far as the path exists.
  virtual std::string canonical(const std::string& path) const = 0;
  /// Device and inode, which are the same for every path of a file. nullopt if it does not exist.
  virtual std::optional<std::pair<uint64_t, uint64_t>> identity(const std::string& path) const = 0;
  /// Whether a file system is mounted there.
  virtual bool is_mount(const std::string& path) const = 0;
};

/// This machine's.
class SystemPlaces final : public PathPlaces {
 public:
  std::string canonical(const std::string& path) const override;
  std::optional<std::pair<uint64_t, uint64_t>> identity(const std::string& path) const override;
  bool is_mount(const std::string& path) const override;
};

/// An input of a run. `key`: of spec.training, or of the manifest.
struct RunRead {
  std::string key, path;
  bool is_checkpoint = false;  ///< may be in OUT/checkpoints
};
/// The inputs that the arguments name. A hub id counts as a path that does not exist.
std::vector<RunRead> reads_of(const TrainingArgs& training);

/// The reason not to start the run: about an input, or about "outputDir".
struct Endangered {
  std::string key, message, hint;
};
/// All endangered files; may be empty. Ignores what cannot be inspected.
std::vector<Endangered> endangered(Files& files, const PathPlaces& places,
                                   const TrainingArgs& training, const std::vector<RunRead>& reads);

}  // namespace dsj::weights
