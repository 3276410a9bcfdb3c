#include "agent/stacks/traced_thread.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

namespace dsj::agent {
namespace {

constexpr int kPatienceMs = 100;

ThreadRegisters thread_registers(const user_regs_struct& all) {
  return {all.rax, all.rdx, all.rcx, all.rbx, all.rsi, all.rdi, all.rbp, all.rsp, all.r8,
          all.r9,  all.r10, all.r11, all.r12, all.r13, all.r14, all.r15, all.rip};
}

}  // namespace

std::string of_thread(pid_t process, pid_t thread, const std::string& file) {
  std::ifstream opened("/proc/" + std::to_string(process) + "/task/" + std::to_string(thread) +
                       "/" + file);
  std::string line;
  std::getline(opened, line);
  return line;
}

std::optional<ThreadRegisters> sleeping_registers(pid_t process, pid_t thread) {
  // "NUMBER ARGUMENTS SP IP" in a system call, "-1 SP IP" in another sleep, or "running".
  std::istringstream line(of_thread(process, thread, "syscall"));
  std::vector<std::string> words;
  for (std::string word; line >> word;) words.push_back(word);
  if (words.size() < 3) return std::nullopt;
  ThreadRegisters registers{};
  registers[kRegisterSp] = std::strtoull(words[words.size() - 2].c_str(), nullptr, 16);
  registers[kRegisterIp] = std::strtoull(words.back().c_str(), nullptr, 16);
  return registers;
}

HeldThread::HeldThread(pid_t thread) : thread_(thread) {
  if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
    problem_ = std::strerror(errno);
    return;
  }
  seized_ = true;
  if (ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) {
    problem_ = std::strerror(errno);
    return;
  }
  // Registers can be read once the thread has stopped. waitpid() cannot be used: the agent's main
  // thread waits for this child, and one of the two would miss the other's event.
  for (int waited = 0; waited < kPatienceMs; ++waited) {
    user_regs_struct all{};
    iovec part{&all, sizeof all};
    if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &part) == 0) {
      registers_ = thread_registers(all);
      return;
    }
    usleep(1000);
  }
  problem_ = "it did not stop";
}

HeldThread::~HeldThread() {
  if (!seized_) return;
  // If the stop is not ours but a signal for the thread, the signal must be delivered.
  siginfo_t why{};
  const bool known = ptrace(PTRACE_GETSIGINFO, thread_, nullptr, &why) == 0;
  const long signal = known && why.si_code >> 8 != PTRACE_EVENT_STOP ? why.si_signo : 0;
  ptrace(PTRACE_DETACH, thread_, nullptr, signal);
}

ProcessMemory::ProcessMemory(pid_t process)
    : file_(open(("/proc/" + std::to_string(process) + "/mem").c_str(), O_RDONLY | O_CLOEXEC)) {}

ProcessMemory::~ProcessMemory() {
  if (file_ >= 0) close(file_);
}

std::optional<uint64_t> ProcessMemory::word(uint64_t address) const {
  uint64_t word = 0;
  const auto read = pread(file_, &word, sizeof word, static_cast<off_t>(address));
  if (read != static_cast<ssize_t>(sizeof word)) return std::nullopt;
  return word;
}

}  // namespace dsj::agent
