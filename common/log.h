// A process's log: "time level [rank N] message" lines on stderr. Only log.cc includes spdlog, so
// that files that see torch can include this.
#pragma once

#include <string>

namespace dsj::log {

/// `prefix` ("rank 1", "agent 0") is part of every line. Call once, before threads start.
void init(const std::string& prefix);
void info(const std::string& message);
void warn(const std::string& message);
void error(const std::string& message);

}  // namespace dsj::log
