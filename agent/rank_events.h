// Reads a rank's event pipe: bytes → lines → events (contract.h). Pure. A rank may die in the
// middle of a line, or print garbage there; neither is an error.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dsj::agent {

/// Cuts a stream into lines. It keeps at most kLineBytesMax of an unfinished line; a longer line is
/// dropped whole and counted.
class LineSplitter {
 public:
  static constexpr size_t kLineBytesMax = 1 << 20;

  /// The lines that `bytes` completes, without their line ends.
  std::vector<std::string> feed(std::string_view bytes);
  int64_t dropped() const { return dropped_; }

 private:
  std::string partial_;
  bool overlong_ = false;
  int64_t dropped_ = 0;
};

enum class RankEventKind {
  Start,
  Resolved,
  Resumed,
  Step,
  Log,
  Eval,
  Note,
  Memory,
  Checkpoint,
  Exported,
  Error,
  Warning,
  Done
};

struct RankEvent {
  RankEventKind kind = RankEventKind::Start;
  int64_t step = 0;     ///< of resumed, step, log, eval, checkpoint, done
  std::string reason;   ///< of error
  std::string message;  ///< of error and warning
  nlohmann::json body;  ///< the whole object
};

/// nullopt: the line is not an event (no JSON object, an unknown kind, or a wrong step).
std::optional<RankEvent> parse_event(const std::string& line);

}  // namespace dsj::agent
