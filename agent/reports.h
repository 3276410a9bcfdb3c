// What worker 0's agent tells whoever keeps the job's status: `dsj run` here, the API server in a
// cluster. JSON objects with "report" naming the kind:
//   attempt    {attempt, worldSize}                  ranks are being started
//   resolved   {config, total_steps}, resumed {step, path}, step {metrics.h}, checkpoint {step,
//   path,
//              bytes, seconds}, exported {path}, log, eval, note, memory
//                                                    rank 0's events, as they came
//   warning    {rank, message}                       of any rank of this worker
//   failure    {attempt, worker, rank, exitCode, signal, step, reason, message, lastWords, restart,
//              pauseMs, restartsUsed, restartsTotal, restartLimit, savedStep}
//   end        {exitCode, reason, message}           the last one
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>

namespace dsj::agent {

class Reports {
 public:
  virtual ~Reports() = default;
  /// Never blocks, never fails: a reader that is slow misses steps, nothing else.
  virtual void report(const nlohmann::json& object) = 0;
  /// Sends what is waiting. True: something still waits and `fd()` should be polled for writing.
  virtual bool flush() = 0;
  virtual int fd() const = 0;
};

/// One object a line on a pipe. A waiting step report is replaced by the next one.
class PipeReports final : public Reports {
 public:
  /// Takes the descriptor; -1: nobody reads.
  explicit PipeReports(int fd);
  ~PipeReports() override;
  void report(const nlohmann::json& object) override;
  bool flush() override;
  int fd() const override { return fd_; }

 private:
  struct Line {
    std::string text;
    bool replaceable;
  };
  int fd_;
  std::deque<Line> waiting_;
  size_t sent_of_first_ = 0;
};

}  // namespace dsj::agent
