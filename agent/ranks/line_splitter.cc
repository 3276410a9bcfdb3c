#include "agent/ranks/line_splitter.h"

#include <utility>

namespace dsj::agent {

std::vector<std::string> LineSplitter::feed(std::string_view bytes) {
  std::vector<std::string> lines;
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (partial_.size() + piece.size() > kLineBytesMax) overlong_ = true;
    if (!overlong_) partial_ += piece;
    if (end == std::string_view::npos) return lines;
    bytes.remove_prefix(end + 1);
    std::string line = std::exchange(partial_, {});
    if (std::exchange(overlong_, false)) {
      ++dropped_;
      continue;
    }
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace dsj::agent
