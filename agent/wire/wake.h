// Lets another thread wake the agent's loop.
// Tested by: tests/agent/wire/transport_test.cc
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace dsj::agent {

/// An eventfd in the agent's poll() set.
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
