// What worker 0's agent tells whoever keeps the job's status: `dsj run`, or in a cluster the thread
// that writes to the API server. JSON objects; "report" is the kind.
//
//   report       other fields
//   attempt      attempt, worldSize: its ranks are being started
//   failure      attempt, worker, rank, exitCode, signal, step, reason, message, lastWords,
//                restart, pauseMs, restartsUsed, restartsTotal, restartLimit, savedStep
//   end          exitCode, reason, message: the last report
//   warning      rank, message: of any rank of this worker; rank -1: of the agent
//   resolved, resumed, step, checkpoint, exported, log, eval, note, memory
//                the fields of rank 0's event, as it came (contract.h)
// Tested by: tests/agent/agent_test.cc
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <string>

namespace dsj::agent {

class Reports {
 public:
  virtual ~Reports() = default;
  /// Never blocks, never fails. A slow reader misses steps, nothing else.
  virtual void report(const nlohmann::json& object) = 0;
  /// Sends what is waiting. True: something still waits, so poll fd() for writing.
  virtual bool flush() = 0;
  virtual int fd() const = 0;
};

/// One object per line on a pipe. A waiting step report is replaced by the next one.
class PipeReports final : public Reports {
 public:
  /// Takes ownership of the descriptor. -1: nobody reads.
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
