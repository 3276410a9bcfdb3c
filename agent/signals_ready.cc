#include "agent/signals_ready.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

namespace dsj::agent {
namespace {

/// The rest of a line of a status file; nullopt if the file does not exist.
std::optional<std::string> line_of(const std::string& status_path, const std::string& name) {
  std::ifstream status(status_path);
  if (!status) return std::nullopt;
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return line.substr(name.size());
  }
  return "";
}

bool ready(const std::string& status_path) {
  const auto program = line_of(status_path, "Name:");
  const auto blocked = line_of(status_path, "SigBlk:");
  if (!program || !blocked) return true;  // the process has ended
  const auto mask = std::strtoull(blocked->c_str(), nullptr, 16);
  const bool hears = (mask >> (SIGTERM - 1) & 1) != 0;  // bit n - 1 is signal n
  return hears && program == line_of("/proc/self/status", "Name:");
}

}  // namespace

bool await_signals_ready(const std::string& status_path, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + patience;
  while (!ready(status_path)) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace dsj::agent
