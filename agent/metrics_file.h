// metrics.jsonl: one line per optimizer step, in rising order, no step twice, whatever attempts
// came and went. A line with "eval_loss" belongs to an evaluation and follows its step's line.
// Worker 0's agent is the only writer. One thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::agent {

class MetricsFile {
 public:
  /// Opens or creates the file. A last line without its end (its writer died) is cut off.
  static Result<MetricsFile> open(const std::string& path);
  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&&) = delete;
  ~MetricsFile();

  /// Writes the fields of a step event (metrics.h) as one line, the fixed names first. It first
  /// drops lines of this and later steps, left by an attempt that came further than its checkpoint.
  Status append(const nlohmann::json& step_event, int64_t step);
  /// Writes the fields of an eval event as one line. Dropped unless `step` is the last step.
  Status append_evaluation(const nlohmann::json& eval_event, int64_t step);
  /// The run continues after `step`: drops the lines of later steps.
  Status drop_after(int64_t step);
  /// Makes the file durable. Call it when a checkpoint of these steps is.
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
