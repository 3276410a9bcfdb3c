#include "agent/status/reports.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace dsj::agent {

PipeReports::PipeReports(int fd) : fd_(fd) {
  if (fd_ >= 0) fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
}

PipeReports::~PipeReports() {
  if (fd_ >= 0) close(fd_);
}

void PipeReports::report(const report::Report& told) {
  if (fd_ < 0) return;
  const bool replaceable = std::holds_alternative<report::Step>(told);
  const bool first_is_partial = waiting_.size() == 1 && sent_of_first_ > 0;
  if (replaceable && !waiting_.empty() && waiting_.back().replaceable && !first_is_partial) {
    waiting_.pop_back();
  }
  waiting_.push_back({report::to_line(told), replaceable});
  flush();
}

bool PipeReports::flush() {
  while (!waiting_.empty()) {
    const std::string& text = waiting_.front().text;
    const ssize_t wrote = write(fd_, text.data() + sent_of_first_, text.size() - sent_of_first_);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) return true;
    if (wrote < 0) {  // the reader is gone; training continues without it
      reader_gone_ = true;
      waiting_.clear();
      sent_of_first_ = 0;
      return false;
    }
    sent_of_first_ += static_cast<size_t>(wrote);
    if (sent_of_first_ < text.size()) continue;
    waiting_.pop_front();
    sent_of_first_ = 0;
  }
  return false;
}

}  // namespace dsj::agent
