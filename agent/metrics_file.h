// metrics.jsonl: one line per optimizer step, rising, no step twice, whatever attempts came and
// went. A line with "eval_loss" is an evaluation's and lies behind its step's line. One writer: the
// agent of worker 0. Not for several threads.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::agent {

class MetricsFile {
 public:
  /// Opens or creates; a last line without its end (a writer that died) is cut off.
  static Result<MetricsFile> open(const std::string& path);
  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&&) = delete;
  ~MetricsFile();

  /// Writes the fields of a step event (metrics.h) as one line, fixed names first. Lines of this
  /// and later steps, left by an attempt that came further than its checkpoint, are dropped first.
  Status append(const nlohmann::json& step_event, int64_t step);
  /// Writes the fields of an eval event as one line. One of a step that is not the last is dropped.
  Status append_evaluation(const nlohmann::json& eval_event, int64_t step);
  /// The run goes on behind `step`: lines of later steps are dropped.
  Status drop_after(int64_t step);
  /// Makes it durable; called when a checkpoint of these steps is.
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
