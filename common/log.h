// Log lines of a process: "time level [rank N] message" on stderr. spdlog behind it, so that torch
// files may include this.
#pragma once

#include <string>

namespace dsj::log {

/// `prefix` ("rank 1", "agent 0") goes with every line. Call once, before threads.
void init(const std::string& prefix);
void info(const std::string& message);
void warn(const std::string& message);
void error(const std::string& message);

}  // namespace dsj::log
