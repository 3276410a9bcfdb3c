// Splits the bytes of a rank's event pipe into lines (job/report/events.h parses them). Pure. A
// rank may die in the middle of a line, or print garbage; neither is an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dsj::agent {

/// Keeps at most kLineBytesMax of an unfinished line; a longer line is dropped completely and
/// counted.
class LineSplitter {
 public:
  static constexpr size_t kLineBytesMax = 1 << 20;

  /// The lines that `bytes` completes, without line ends.
  std::vector<std::string> feed(std::string_view bytes);
  int64_t dropped() const { return dropped_; }

 private:
  std::string partial_;
  bool overlong_ = false;
  int64_t dropped_ = 0;
};

}  // namespace dsj::agent
