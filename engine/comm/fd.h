// Small system helpers of the backends. Internal to comm.
#pragma once

#include <string>
#include <utility>

namespace dsj::comm {

/// Owns a file descriptor and closes it.
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

/// 32 hexadecimal digits from the kernel's random generator; empty if it fails.
std::string random_word();

}  // namespace dsj::comm
