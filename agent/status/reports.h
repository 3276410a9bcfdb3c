// The port to the keeper of the job's status: `dsj run`, or in a cluster the thread that writes to
// the API server. job/report/reports.h has the reports of worker 0's agent.
// Tested by: tests/agent/agent_test.cc
#pragma once

#include <deque>
#include <string>

#include "job/report/reports.h"

namespace dsj::agent {

class Reports {
 public:
  virtual ~Reports() = default;
  /// Never blocks, never fails. A slow reader misses only steps.
  virtual void report(const report::Report& told) = 0;
  /// Sends what is waiting. Returns true if something still waits: poll fd() for writing.
  virtual bool flush() = 0;
  virtual int fd() const = 0;
};

/// One object per line on a pipe. A waiting step report is replaced by a newer one.
class PipeReports final : public Reports {
 public:
  /// Takes ownership of the descriptor. -1 if there is no reader.
  explicit PipeReports(int fd);
  ~PipeReports() override;
  void report(const report::Report& told) override;
  bool flush() override;
  int fd() const override { return fd_; }
  /// True if the reader closed its end: further reports are lost.
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
