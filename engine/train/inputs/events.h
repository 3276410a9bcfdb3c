// Events to the agent (job/report/events.h): one JSON object per line, on an inherited pipe.
#pragma once

#include <string>

#include "job/report/events.h"

namespace dsj::train {

class Events {
 public:
  /// If fd is -1, events are dropped. A closed pipe is not an error: the agent's death ends the
  /// rank by other means.
  explicit Events(int fd) : fd_(fd) {}
  /// Any thread: a line is written by one call.
  void emit(const report::Event& event) const;
  void warn(const std::string& message) const;  ///< as an event, and in the log

 private:
  int fd_;
};

}  // namespace dsj::train
