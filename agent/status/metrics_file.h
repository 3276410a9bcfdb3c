// metrics.jsonl: one line per optimizer step, in ascending order, each step once, regardless of the
// number of attempts. A line with "eval_loss" belongs to an evaluation and follows its step's line.
// Worker 0's agent is the only writer. For one thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/result.h"
#include "job/report/events.h"

namespace dsj::agent {

class MetricsFile {
 public:
  /// Opens or creates the file. An unfinished last line (its writer died) is cut off. A file with
  /// this name that was not written by a run is renamed to PATH.kept.
  static Result<MetricsFile> open(const std::string& path);
  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&&) = delete;
  ~MetricsFile();

  /// Writes a step's line (report::metrics_line). First drops lines of this and later steps, which
  /// an attempt left that progressed beyond its checkpoint.
  Status append(const report::Step& step, const nlohmann::json& others);
  /// Writes an evaluation's line. Dropped unless its step is the last one.
  Status append(const report::Eval& eval, const nlohmann::json& others);
  /// The run continues after `step`: drops the lines of later steps.
  Status drop_after(int64_t step);
  /// Makes the file durable. Call it when a checkpoint of these steps is durable.
  Status sync();
  int64_t last_step() const { return last_step_; }

 private:
  Status write_line(const std::string& line);
  MetricsFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_ = -1;
  int64_t last_step_ = 0;
};

}  // namespace dsj::agent
