#include "agent/stacks/process_stacks.h"

#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <sstream>

#include "agent/stacks/traced_thread.h"

namespace dsj::agent {
namespace {

constexpr size_t kThreadsMost = 1024, kFramesMost = 128;

std::string readable(const std::string& name) {
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &failed), std::free);
  return failed == 0 && plain ? plain.get() : name;
}

/// Reads the file instead of mapping it, because a mapped file may be truncated by others.
int open_program(Dwfl_Module* module, void** own, const char* name, Dwarf_Addr base,
                 char** file_name, Elf** elf) {
  if (name[0] != '/') return dwfl_linux_proc_find_elf(module, own, name, base, file_name, elf);
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  *elf = elf_begin(fd, ELF_C_READ, nullptr);
  if (*elf) return fd;
  close(fd);
  return -1;
}

/// Separate debug files are not searched for.
int no_debug_file(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                  GElf_Word, char**) {
  return -1;
}

constexpr Dwfl_Callbacks kFiles{.find_elf = open_program, .find_debuginfo = no_debug_file};

/// A frame before its function is named.
struct RawFrame {
  Dwfl_Module* module = nullptr;  ///< null if the file is unknown
  Dwarf_Addr address = 0;
};
/// Whether the call frame information describes a function's caller.
enum class Above { Known, None, Unknown };
struct RawStack {
  std::vector<RawFrame> frames;
  std::string problem;
  Above above = Above::Unknown;  ///< for the last frame
};

Above above(Dwfl_Module* module, Dwarf_Addr address) {
  Dwarf_Addr bias = 0;
  Dwarf_CFI* const table = dwfl_module_eh_cfi(module, &bias);
  Dwarf_Frame* frame = nullptr;
  if (!table || dwarf_cfi_addrframe(table, address - bias, &frame) != 0) return Above::Unknown;
  const std::unique_ptr<Dwarf_Frame, decltype(&std::free)> owned(frame, std::free);
  Dwarf_Op space[3], *rule = nullptr;
  size_t operations = 0;
  if (dwarf_frame_register(frame, kRegisterIp, space, &rule, &operations) != 0)
    return Above::Unknown;
  return operations == 0 && rule == space ? Above::None : Above::Known;
}

int take_frame(Dwfl_Frame* frame, void* into) {
  RawStack& stack = *static_cast<RawStack*>(into);
  if (stack.frames.size() == kFramesMost) {
    stack.problem = "more than " + std::to_string(kFramesMost) + " functions";
    return DWARF_CB_ABORT;
  }
  Dwarf_Addr address = 0;
  bool exact = false;
  if (!dwfl_frame_pc(frame, &address, &exact)) return DWARF_CB_ABORT;
  if (!exact) --address;  // after a call another function may begin
  Dwfl_Module* const module = dwfl_addrmodule(dwfl_thread_dwfl(dwfl_frame_thread(frame)), address);
  stack.frames.push_back({module, address});
  GElf_Addr bias = 0;
  if (!module || !dwfl_module_getelf(module, &bias)) {
    stack.problem = "code that is in no readable file";
  } else {
    stack.above = above(module, address);
    // libdwfl would continue by guessing.
    if (stack.above == Above::Unknown) stack.problem = "no call frame information";
  }
  return stack.problem.empty() ? DWARF_CB_OK : DWARF_CB_ABORT;
}

class Process {
 public:
  explicit Process(pid_t pid) : pid_(pid), memory_(pid), dwfl_(dwfl_begin(&kFiles), dwfl_end) {}

  Status read_maps() {
    dwfl_report_begin(dwfl_.get());
    const int problem = dwfl_linux_proc_report(dwfl_.get(), pid_);
    dwfl_report_end(dwfl_.get(), nullptr, nullptr);
    const bool any =
        dwfl_getmodules(
            dwfl_.get(), [](auto...) -> int { return DWARF_CB_ABORT; }, nullptr, 0) != 0;
    if (problem == 0 && any) {
      dwfl_attach_state(dwfl_.get(), nullptr, pid_, &kThreads, this);
      return {};
    }
    // A zombie has no memory.
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

  /// Holds the thread only if it runs, or if its registers in /proc do not lead to the end of its
  /// stack.
  RawStack look(pid_t thread) {
    RawStack asleep;
    if (const auto registers = sleeping_registers(pid_, thread)) {
      asleep = walk(thread, *registers);
      if (asleep.problem.empty()) return asleep;
    }
    const HeldThread held(thread);
    if (held.registers()) {
      RawStack whole = walk(thread, *held.registers());
      if (whole.frames.size() >= asleep.frames.size()) return whole;
    } else if (asleep.frames.empty()) {
      asleep.problem = held.problem();
    }
    return asleep;
  }

  /// Whether the kernel permits reading this process at all.
  Status may_be_read(pid_t thread) {
    errno = 0;
    std::ifstream file("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(thread) +
                       "/syscall");
    std::string line;
    if (std::getline(file, line)) return {};
    if (HeldThread(thread).registers()) return {};
    return refused();
  }

  /// Names the functions, with one pass over the symbols of each file.
  std::vector<ThreadStack> named(const std::vector<std::pair<pid_t, RawStack>>& raw) const {
    std::map<Dwfl_Module*, std::map<Dwarf_Addr, std::string>> names;
    for (const auto& [thread, stack] : raw) {
      for (const RawFrame& frame : stack.frames) {
        if (frame.module) names[frame.module][frame.address];
      }
    }
    for (auto& [module, of_file] : names) name_functions(module, of_file);
    std::vector<ThreadStack> stacks;
    for (const auto& [thread, stack] : raw) {
      ThreadStack one{
          .thread = thread, .name = of_thread(pid_, thread, "comm"), .problem = stack.problem};
      for (const RawFrame& frame : stack.frames) {
        if (frame.module) {
          one.frames.push_back(
              {readable(names[frame.module][frame.address]), file_of(frame.module)});
        } else {
          one.frames.emplace_back();
        }
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

  static std::string file_of(Dwfl_Module* module) {
    const std::string path =
        dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    return path.substr(path.rfind('/') + 1);
  }

  /// Addresses that no symbol contains keep an empty name.
  static void name_functions(Dwfl_Module* module, std::map<Dwarf_Addr, std::string>& addresses) {
    const int symbols = dwfl_module_getsymtab(module);
    for (int i = 1; i < symbols; ++i) {
      GElf_Sym symbol{};
      GElf_Addr start = 0;
      const char* name =
          dwfl_module_getsym_info(module, i, &symbol, &start, nullptr, nullptr, nullptr);
      const auto type = GELF_ST_TYPE(symbol.st_info);
      if (!name || (type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF)
        continue;
      for (auto one = addresses.lower_bound(start);
           one != addresses.end() && one->first - start < symbol.st_size; ++one) {
        if (one->second.empty()) one->second = name;
      }
    }
  }

  RawStack walk(pid_t thread, const ThreadRegisters& registers) {
    registers_ = registers;
    RawStack stack;
    const int result = dwfl_getthread_frames(dwfl_.get(), thread, take_frame, &stack);
    if (!stack.problem.empty()) return stack;
    if (result != 0) {
      stack.problem = dwfl_errmsg(-1);
    } else if (stack.above == Above::Known) {  // libdwfl reports success
      stack.problem = "an unknown register is needed, or the stack cannot be read";
    }
    return stack;
  }

  static Process& of(void* self) { return *static_cast<Process*>(self); }
  static bool read_word(Dwfl*, Dwarf_Addr address, Dwarf_Word* word, void* self) {
    const auto read = of(self).memory_.word(address);
    *word = read.value_or(0);
    return read.has_value();
  }
  static bool give_registers(Dwfl_Thread* thread, void* self) {
    const ThreadRegisters& registers = of(self).registers_;
    for (int i = 0; i < kRegisterIp; ++i) {
      const Dwarf_Word value = registers[i].value_or(0);
      if (registers[i] && !dwfl_thread_state_registers(thread, i, 1, &value)) return false;
    }
    dwfl_thread_state_register_pc(thread, *registers[kRegisterIp]);
    return true;
  }
  static constexpr Dwfl_Thread_Callbacks kThreads{
      .next_thread = [](Dwfl*, void*, void**) -> pid_t { return 0; },
      .get_thread =
          [](Dwfl*, pid_t, void* self, void** of_thread) {
            *of_thread = self;
            return true;
          },
      .memory_read = read_word,
      .set_initial_registers = give_registers};

  const pid_t pid_;
  const ProcessMemory memory_;
  const std::unique_ptr<Dwfl, decltype(&dwfl_end)> dwfl_;
  ThreadRegisters registers_;  ///< of the thread whose stack is being walked
};

/// Reads /proc: "PID (NAME) STATE PARENT GROUP ...". NAME may contain any characters.
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
