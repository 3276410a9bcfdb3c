// Where the time of a start goes: each process notes when a stage ended, with the clock that all
// processes of a machine share and with its own processor time. Lines of one file carry it from
// process to process; startup_table.h makes a table of them. Off, everything here does nothing.
//
// Called by: dsj run, dsj-agent, dsj-train, under DSJ_STARTUP_TRACE (docs/reports/startup.md). One
// thread, a process's first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::startup {

struct Moment {
  int64_t wall_us = 0;  ///< CLOCK_MONOTONIC
  int64_t cpu_us = 0;   ///< processor time of this process, all threads
};

struct Stage {
  std::string name;
  Moment end;  ///< it began when the one before it ended
};

/// What one process did in one attempt.
struct Trace {
  std::string process;  ///< "dsj", "agent 0", "rank 1"
  int64_t attempt = 0;  ///< 0: it started the first attempt, whose number it does not know
  Moment begin;
  std::vector<Stage> stages;
};

/// One JSON object and a newline.
std::string to_line(const Trace& trace);
/// nullopt: not such a line.
std::optional<Trace> trace_from_line(const std::string& line);

/// The moment of this process.
Moment now();

/// Whether the variable's text switches the trace on: a whole number other than 0.
/// nullopt: it is neither empty nor a whole number.
std::optional<bool> switched_on(const std::string& text);

class Recorder {
 public:
  using Clock = std::function<Moment()>;
  explicit Recorder(Clock clock = now) : clock_(std::move(clock)) {}

  /// `text`: the variable's. It is 1, or the wall_us at which another process launched this one:
  /// then the first stage began there. A process that nobody launched so began when it began to
  /// use the processor.
  void begin(std::string process, const std::string& text);
  bool on() const { return on_; }
  void stage_ends(std::string name);
  /// The text for a process that is launched now; empty: off.
  std::string for_child() const;
  /// What was noted so far, as a line; empty: off.
  std::string line(int64_t attempt) const;
  /// Forgets it: the next attempt begins now.
  void begin_again();

 private:
  Clock clock_;
  bool on_ = false;
  Trace trace_;
};

/// The recorder of this process.
Recorder& recorder();

/// Appends the recorder's line to a file, in one write, so that processes do not mix theirs.
/// A trace that cannot be written is none: the run goes on.
void append_line(const std::string& file, int64_t attempt);

}  // namespace dsj::startup
