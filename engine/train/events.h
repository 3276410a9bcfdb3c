// Event lines to the agent (common/contract.h): one JSON object per line, on an inherited pipe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::train {

class Events {
 public:
  /// fd -1: events are dropped. A reader that went away is no error: the agent's death ends the
  /// rank, not this.
  explicit Events(int fd) : fd_(fd) {}
  /// `fields` may be empty. Any thread: a line is written by one call.
  void emit(const char* event, nlohmann::json fields = nlohmann::json::object()) const;
  void warn(const std::string& message) const;  ///< as an event, and in the log

 private:
  int fd_;
};

}  // namespace dsj::train
