// Measures startup: each process records when a stage ended, by the clock that all processes of a
// machine share and by its own processor time. Lines of one file collect them; startup_table.h
// prints a table. If it is off, nothing here has an effect.
//
// dsj run, dsj-agent and dsj-train call it, under DSJ_STARTUP_TRACE (docs/reports/startup.md). Only
// the first thread of a process.
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
  Moment end;  ///< it begins at the end of the previous stage
};

/// The stages of one process in one attempt.
struct Trace {
  std::string process;  ///< "dsj", "agent 0", "rank 1"
  int64_t attempt = 0;  ///< 0: it started the first attempt and does not know the number
  Moment begin;
  std::vector<Stage> stages;
};

/// One JSON object and a newline.
std::string to_line(const Trace& trace);
/// nullopt if it is not such a line.
std::optional<Trace> trace_from_line(const std::string& line);

/// The present moment of this process.
Moment now();

/// Whether the variable's text enables the trace: a whole number other than 0. nullopt if it is
/// neither empty nor a whole number.
std::optional<bool> switched_on(const std::string& text);

class Recorder {
 public:
  using Clock = std::function<Moment()>;
  explicit Recorder(Clock clock = now) : clock_(std::move(clock)) {}

  /// `text`: the variable's. 1, or the wall_us at which another process launched this one, which is
  /// the start of the first stage. A process that was not launched in this way started when it
  /// first used the processor.
  void begin(std::string process, const std::string& text);
  bool on() const { return on_; }
  void stage_ends(std::string name);
  /// The text for a child process that is launched now; empty if off.
  std::string for_child() const;
  /// The recorded stages as a line; empty if off.
  std::string line(int64_t attempt) const;
  /// Clears the record: the next attempt begins now.
  void begin_again();

 private:
  Clock clock_;
  bool on_ = false;
  Trace trace_;
};

/// The recorder of this process.
Recorder& recorder();

/// Appends the recorder's line to a file in one write, so that lines of processes do not mix.
/// Ignores write errors: the run continues.
void append_line(const std::string& file, int64_t attempt);

}  // namespace dsj::startup
