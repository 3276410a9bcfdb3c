// The port to whoever keeps the job's status: `dsj run`, or in a cluster the thread that writes to
// the API server. job/report/reports.h says what worker 0's agent tells it.
// Tested by: tests/agent/agent_test.cc
#pragma once

#include <deque>
#include <string>

#include "job/report/reports.h"

namespace dsj::agent {

class Reports {
 public:
  virtual ~Reports() = default;
  /// Never blocks, never fails. A slow reader misses steps, nothing else.
  virtual void report(const report::Report& told) = 0;
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
  void report(const report::Report& told) override;
  bool flush() override;
  int fd() const override { return fd_; }
  /// Whether the reader closed its end: reports are lost from then on.
  bool reader_gone() const { return reader_gone_; }

 private:
  struct Line {
    std::string text;
    bool replaceable;
  };
  int fd_;
  bool reader_gone_ = false;
  std::deque<Line> waiting_;
  size_t sent_of_first_ = 0;
};

}  // namespace dsj::agent
