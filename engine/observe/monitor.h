// tensorboard and csv_monitor: curves in files that other programs read during the run. Rank 0
// only. A value is in its file when write() returns.
//
// Files are in PATH/NAME/: ds_config's output_path and job_name, joined as in DeepSpeed. An empty
// output_path is the working directory.
//   tensorboard    events.out.tfevents.SECONDS.HOST.PID.0, one per attempt
//   csv_monitor    one file per tag, "Train/Samples/lr" in Train_Samples_lr.csv: header "step,lr",
//                  then a row per value; a resumed run appends to it
// A resumed run does not repeat an x: TensorBoard gets an event to drop values at `from` and later,
// and such rows are removed from CSV files.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/observe/tfevents.h"
#include "job/dsconfig/config/resolved.h"

namespace dsj::observe {

/// One thread.
class Monitor {
 public:
  virtual ~Monitor() = default;
  /// Values of any tags, each with its own x.
  virtual Status write(std::span<const Scalar> scalars) = 0;
};

/// Seconds since 1970.
using WallClock = std::function<double()>;
double wall_clock();

/// `from`: the first x of this attempt; 0 for a new run. `files` must outlive the monitor.
/// Environment: the directory or the file cannot be made.
Result<std::unique_ptr<Monitor>> open_tensorboard(Files& files,
                                                  const dsconfig::MonitorConfig& config,
                                                  int64_t from, WallClock clock = wall_clock);
Result<std::unique_ptr<Monitor>> open_csv(Files& files, const dsconfig::MonitorConfig& config,
                                          int64_t from);

}  // namespace dsj::observe
