// What the two sides of http_transport.h share: how they wake the agent's loop, and words of the wire.
// Tested by: tests/agent/gang/transport_test.cc
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace dsj::agent {

inline constexpr char kBeatPath[] = "/v1/beat";
inline constexpr char kNewestSequenceKey[] = "newestSequence";  ///< of a 409

/// An eventfd that wakes the agent's poll().
class Wake {
 public:
  Wake() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Wake() { close(fd_); }
  Wake(const Wake&) = delete;
  void set() { [[maybe_unused]] const auto ignored = eventfd_write(fd_, 1); }
  void clear() {
    eventfd_t value;
    [[maybe_unused]] const auto ignored = eventfd_read(fd_, &value);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace dsj::agent
