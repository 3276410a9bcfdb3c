// Whether a run would destroy what it reads, or what somebody keeps in its output directory. One rule
// for `dsj validate`, `dsj plan` and `dsj run`, and for the ranks, whose jobs an operator may have
// started: OUT/model is replaced when the run ends, checkpoints are removed, two files are rewritten.
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

/// Where paths lead: a port, for a test without links and mounts.
class PathPlaces {
 public:
  virtual ~PathPlaces() = default;
  /// Absolute, without "..", links followed as far as the path exists.
  virtual std::string canonical(const std::string& path) const = 0;
  /// Device and number: one file has one, by whatever path. nullopt: it is not there.
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

/// Something that a run reads. `key`: of spec.training, or of the manifest.
struct RunRead {
  std::string key, path;
  bool is_checkpoint = false;  ///< may lie in OUT/checkpoints
};
/// What the arguments name. A hub id is a path that is not there.
std::vector<RunRead> reads_of(const TrainingArgs& training);

/// Why the run must not start: of a read, or of "outputDir".
struct Endangered {
  std::string key, message, hint;
};
/// All that is endangered; empty: nothing is. What cannot be looked at is not judged here.
std::vector<Endangered> endangered(Files& files, const PathPlaces& places,
                                   const TrainingArgs& training, const std::vector<RunRead>& reads);

}  // namespace dsj::weights
