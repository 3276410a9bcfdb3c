// Small system things of the backends. Internal to the room.
#pragma once

#include <string>
#include <utility>

namespace dsj::comm {

/// A file descriptor that is closed when its owner goes.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

/// 32 hexadecimal digits from the kernel's generator; empty if it gives none.
std::string random_word();

}  // namespace dsj::comm
