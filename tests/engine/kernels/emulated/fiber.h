// Fibers: the threads of an emulated block, all on one thread of the host. x86-64. A switch costs a
// few nanoseconds, because it saves only what a call keeps. The switches are told to
// AddressSanitizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace dsj::emulated {

/// A stack and where it stands. Not thread-safe: one host thread runs all fibers.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next resume() calls entry() from the beginning. What the fiber did before is forgotten,
  /// and no destructor of it runs.
  void start(void (*entry)());
  /// Runs the fiber until it calls leave(). Called outside of fibers.
  void resume();
  /// Goes back to where resume() was called. Called by the running fiber. `last`: it ends for good.
  static void leave(bool last = false);

  /// Whether the address lies on this fiber's stack.
  bool has(uintptr_t address) const {
    return address - reinterpret_cast<uintptr_t>(stack_) < kStack;
  }

 private:
  static constexpr std::size_t kStack = 64 * 1024;
  static void enter();

  char* stack_ = nullptr;
  void* top_ = nullptr;   // of the stack, while it does not run
  void* fake_ = nullptr;  // AddressSanitizer's
  bool ended_ = true;     // it has left for good: no frame of it is left
  void (*entry_)() = nullptr;
};

}  // namespace dsj::emulated
