#include "agent/stacks/process_stacks.h"

#include <cxxabi.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "agent/stacks/call_frames.h"
#include "agent/stacks/program_file.h"
#include "agent/stacks/traced_thread.h"

namespace dsj::agent {
namespace {

constexpr size_t kThreadsMost = 1024, kFramesMost = 128, kMapsMost = 1 << 16;

/// An executable stretch of a process's memory, and the file that lies there.
struct Mapped {
  uint64_t start = 0, end = 0, offset = 0;
  std::string path;
};

/// "START-END PERMISSIONS OFFSET DEVICE INODE PATH", in hexadecimal.
std::optional<Mapped> mapped_from(const std::string& line) {
  std::istringstream in(line);
  std::string range, permissions, offset, device, inode, path;
  in >> range >> permissions >> offset >> device >> inode >> std::ws;
  std::getline(in, path);
  const size_t dash = range.find('-');
  if (dash == std::string::npos || permissions.find('x') == std::string::npos) return std::nullopt;
  const auto number = [](const std::string& text) {
    return std::strtoull(text.c_str(), nullptr, 16);
  };
  return Mapped{number(range.substr(0, dash)), number(range.substr(dash + 1)), number(offset),
                path};
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string readable(const std::string& name) {
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &failed), std::free);
  return failed == 0 && plain ? plain.get() : name;
}

/// A frame as it is found, before its function has a name.
struct RawFrame {
  const Mapped* mapped = nullptr;  ///< null: no known file
  uint64_t address = 0;            ///< in the file's numbering
};
struct RawStack {
  std::vector<RawFrame> frames;
  std::string problem;
};

class Process {
 public:
  explicit Process(pid_t pid) : pid_(pid), memory_(pid) {}

  Status read_maps() {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/maps");
    std::string line;
    while (maps_.size() < kMapsMost && std::getline(file, line)) {
      if (auto one = mapped_from(line)) maps_.push_back(std::move(*one));
    }
    if (!maps_.empty()) return {};
    // A process that has ended and was not collected has no memory.
    const std::string stat = of_thread(pid_, pid_, "stat");
    const size_t name = stat.rfind(')');
    const bool lives = name != std::string::npos && stat.find_first_of("ZX", name) != name + 2;
    if (lives) return refused();
    return std::unexpected(gone());
  }

  Result<std::vector<pid_t>> threads() const {
    std::vector<pid_t> found;
    std::error_code problem;
    for (std::filesystem::directory_iterator at("/proc/" + std::to_string(pid_) + "/task", problem),
         end;
         !problem && at != end && found.size() < kThreadsMost; at.increment(problem)) {
      found.push_back(std::stoi(at->path().filename()));
    }
    if (found.empty()) return std::unexpected(gone());
    std::ranges::sort(found);
    std::ranges::stable_partition(found, [this](pid_t one) { return one == pid_; });
    return found;
  }

  /// Held only if it computes, or if its registers of a sleep do not lead to the end of its stack.
  RawStack look(pid_t thread) {
    RawStack asleep;
    if (const auto registers = sleeping_registers(pid_, thread)) {
      asleep = walk(*registers);
      if (asleep.problem.empty()) return asleep;
    }
    const HeldThread held(thread);
    if (held.registers()) {
      RawStack whole = walk(*held.registers());
      if (whole.frames.size() >= asleep.frames.size()) return whole;
    } else if (asleep.frames.empty()) {
      asleep.problem = held.problem();
    }
    return asleep;
  }

  /// The kernel's answer to the question of whether this process may be read at all.
  Status may_be_read(pid_t thread) {
    errno = 0;
    std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(thread) +
                       "/syscall");
    std::string line;
    if (std::getline(file, line)) return {};
    if (HeldThread(thread).registers()) return {};
    return refused();
  }

  /// Names what was found, with one pass over the symbols of each file.
  std::vector<ThreadStack> named(const std::vector<std::pair<pid_t, RawStack>>& raw) {
    std::map<std::string, std::set<uint64_t>> wanted;
    for (const auto& [thread, stack] : raw) {
      for (const RawFrame& frame : stack.frames) {
        if (frame.mapped && file(frame.mapped->path)) {
          wanted[frame.mapped->path].insert(frame.address);
        }
      }
    }
    std::map<std::string, std::map<uint64_t, std::string>> names;
    for (const auto& [path, addresses] : wanted) names[path] = file(path)->functions(addresses);
    std::vector<ThreadStack> stacks;
    for (const auto& [thread, stack] : raw) {
      ThreadStack one{
          .thread = thread, .name = of_thread(pid_, thread, "comm"), .problem = stack.problem};
      for (const RawFrame& frame : stack.frames) {
        StackFrame told;
        if (frame.mapped) {
          told.file = base_name(frame.mapped->path);
          const auto& of_file = names[frame.mapped->path];
          const auto name = of_file.find(frame.address);
          if (name != of_file.end()) told.function = readable(name->second);
        }
        one.frames.push_back(std::move(told));
      }
      stacks.push_back(std::move(one));
    }
    return stacks;
  }

 private:
  Error gone() const {
    return {ErrorKind::Environment, "it is gone", "process " + std::to_string(pid_)};
  }
  Status refused() const {
    std::ifstream file("/proc/sys/kernel/yama/ptrace_scope");
    std::string scope;
    file >> scope;
    return fail(
        ErrorKind::Environment,
        "the container does not allow to read its threads (ptrace" +
            (scope.empty() ? ")" : "; kernel.yama.ptrace_scope is " + scope + ")"),
        "process " + std::to_string(pid_),
        "the rank must run as the agent's user, not be set-uid, and the seccomp profile must "
        "allow ptrace");
  }

  const Mapped* mapped_at(uint64_t address) const {
    for (const Mapped& one : maps_) {
      if (address >= one.start && address < one.end) return &one;
    }
    return nullptr;
  }

  /// null: it is no file that can be read.
  const ProgramFile* file(const std::string& path) {
    const auto known = files_.find(path);
    if (known != files_.end()) return known->second ? &*known->second : nullptr;
    std::optional<ProgramFile>& opened = files_[path];
    if (!path.starts_with('/')) return nullptr;
    if (auto read = ProgramFile::open(path)) opened.emplace(std::move(*read));
    return opened ? &*opened : nullptr;
  }

  RawStack walk(FrameRegisters registers) {
    RawStack stack;
    const ReadWord memory = [this](uint64_t address) { return memory_.word(address); };
    for (bool exact = true; stack.frames.size() < kFramesMost;) {
      // Behind a call may be another function.
      const uint64_t address = *registers[kRegisterIp] - (exact ? 0 : 1);
      const Mapped* mapped = mapped_at(address);
      const ProgramFile* program = mapped ? file(mapped->path) : nullptr;
      const auto own =
          program ? program->address_of(address - mapped->start + mapped->offset) : std::nullopt;
      stack.frames.push_back({mapped, own.value_or(0)});
      if (!own) return stack.problem = "code of no file that can be read", stack;
      const auto caller =
          caller_of([program](uint64_t at, size_t most) { return program->read(at, most); },
                    program->frame_table(), *own, registers, memory);
      if (!caller) return stack.problem = caller.error().message, stack;
      if (caller->outermost) return stack;
      const auto below = registers[kRegisterSp], above = caller->registers[kRegisterSp];
      // A signal may have its own stack anywhere.
      if (!above || (!caller->signal_frame && below && *above <= *below)) {
        return stack.problem = "the next frame is not further up the stack", stack;
      }
      registers = caller->registers;
      exact = caller->signal_frame;
    }
    stack.problem = "more than " + std::to_string(kFramesMost) + " functions";
    return stack;
  }

  const pid_t pid_;
  const ProcessMemory memory_;
  std::vector<Mapped> maps_;
  std::map<std::string, std::optional<ProgramFile>> files_;
};

/// From /proc: "PID (NAME) STATE PARENT GROUP ...". A name may have any characters.
pid_t group_in(const std::string& stat) {
  const size_t name = stat.rfind(')');
  if (name == std::string::npos) return -1;
  std::istringstream in(stat.substr(name + 1));
  std::string state;
  pid_t parent = -1, group = -1;
  in >> state >> parent >> group;
  return group;
}

}  // namespace

std::vector<pid_t> group_of(pid_t leader) {
  constexpr size_t kMost = 16;
  std::vector<pid_t> group = {leader};
  std::error_code problem;
  for (std::filesystem::directory_iterator at("/proc", problem), end;
       !problem && at != end && group.size() < kMost; at.increment(problem)) {
    const std::string name = at->path().filename();
    pid_t pid = 0;
    const auto [rest, wrong] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (wrong != std::errc{} || rest != name.data() + name.size() || pid == leader) continue;
    if (group_in(of_thread(pid, pid, "stat")) == leader) group.push_back(pid);
  }
  std::sort(group.begin() + 1, group.end());
  return group;
}

Result<std::vector<ThreadStack>> stacks_of(pid_t pid) {
  Process process(pid);
  DSJ_TRY_STATUS(process.read_maps());
  DSJ_TRY(const auto threads, process.threads());
  DSJ_TRY_STATUS(process.may_be_read(threads.front()));
  std::vector<std::pair<pid_t, RawStack>> raw;
  for (const pid_t thread : threads) raw.emplace_back(thread, process.look(thread));
  return process.named(raw);
}

}  // namespace dsj::agent
