// Reads the registers of one thread of another process. The kernel permits it as it permits ptrace:
// as a rule for a child of the same user. A thread that sleeps in the kernel is not touched,
// because /proc shows where it is. A thread that runs, or whose entry in /proc does not suffice, is
// held for some milliseconds.
// Tested by: tests/agent/stacks/process_stacks_test.cc
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace dsj::agent {

/// Indexed by the DWARF numbers of x86-64 registers (System V ABI, figure 3.36); the last is the
/// instruction pointer. nullopt if unknown.
using ThreadRegisters = std::array<std::optional<uint64_t>, 17>;
inline constexpr int kRegisterSp = 7, kRegisterIp = 16;

/// The first line of a file of the thread in /proc; empty if it does not exist or cannot be read.
std::string of_thread(pid_t process, pid_t thread, const std::string& file);

/// Stack and instruction pointer of a sleeping thread; nullopt if it runs or they are not
/// available.
std::optional<ThreadRegisters> sleeping_registers(pid_t process, pid_t thread);

/// Holds a thread while this object exists. A signal that arrives meanwhile is delivered
/// afterwards; a stopped thread stays stopped. Waits at most a tenth of a second. Must be created,
/// used and destroyed on one thread; the end of that thread releases whatever it holds.
class HeldThread {
 public:
  explicit HeldThread(pid_t thread);
  ~HeldThread();
  HeldThread(const HeldThread&) = delete;
  /// nullopt if the thread could not be held.
  const std::optional<ThreadRegisters>& registers() const { return registers_; }
  /// Why it could not be held.
  const std::string& problem() const { return problem_; }

 private:
  const pid_t thread_;
  bool seized_ = false;
  std::optional<ThreadRegisters> registers_;
  std::string problem_;
};

/// Another process's memory, through its file in /proc. process_vm_readv needs the same permission,
/// but containerd's seccomp profile RuntimeDefault does not allow it.
class ProcessMemory {
 public:
  explicit ProcessMemory(pid_t process);
  ~ProcessMemory();
  ProcessMemory(const ProcessMemory&) = delete;
  /// nullopt if the address cannot be read.
  std::optional<uint64_t> word(uint64_t address) const;

 private:
  const int file_;
};

}  // namespace dsj::agent
