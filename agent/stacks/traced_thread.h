// A look at one thread of another process, which the kernel allows as it allows ptrace: as a rule of a
// child that runs as the same user. A thread that sleeps in the kernel is not touched: /proc tells where
// it is. Only one that computes, or whose sleep tells too little, is held for some milliseconds.
// Tested by: tests/agent/stacks/process_stacks_test.cc
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace dsj::agent {

/// By DWARF's numbers of the registers of x86-64 (System V ABI, figure 3.36); the last is the address of the
/// instruction. nullopt: not known.
using ThreadRegisters = std::array<std::optional<uint64_t>, 17>;
inline constexpr int kRegisterSp = 7, kRegisterIp = 16;

/// The first line of a file of the thread in /proc; empty: there is none, or it may not be read.
std::string of_thread(pid_t process, pid_t thread, const std::string& file);

/// Stack pointer and instruction of a thread that sleeps; nullopt: it computes, or that is not told.
std::optional<ThreadRegisters> sleeping_registers(pid_t process, pid_t thread);

/// Holds a thread still while it lives. A signal that comes meanwhile is delivered afterwards; a thread
/// that was stopped stays so. Waits at most a tenth of a second. One thread makes, uses and ends it; when
/// that thread ends, so does whatever it still holds.
class HeldThread {
 public:
  explicit HeldThread(pid_t thread);
  ~HeldThread();
  HeldThread(const HeldThread&) = delete;
  /// nullopt: it cannot be held.
  const std::optional<ThreadRegisters>& registers() const { return registers_; }
  /// Why not.
  const std::string& problem() const { return problem_; }

 private:
  const pid_t thread_;
  bool seized_ = false;
  std::optional<ThreadRegisters> registers_;
  std::string problem_;
};

/// Another process's memory, by its file in /proc: process_vm_readv, which the same right governs, is not
/// in the seccomp profile that containerd gives as RuntimeDefault.
class ProcessMemory {
 public:
  explicit ProcessMemory(pid_t process);
  ~ProcessMemory();
  ProcessMemory(const ProcessMemory&) = delete;
  /// nullopt: it cannot be read.
  std::optional<uint64_t> word(uint64_t address) const;

 private:
  const int file_;
};

}  // namespace dsj::agent
