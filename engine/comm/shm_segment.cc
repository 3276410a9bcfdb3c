#include "engine/comm/shm_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>

namespace dsj::comm {
namespace {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

constexpr std::size_t kWordBytes = 64;  // for the random word at the start of the memory

std::size_t blocks_bytes(int world) {
  return static_cast<std::size_t>(world) * sizeof(RankBlock);
}

std::size_t total_bytes(int world) {
  return kWordBytes + blocks_bytes(world) +
         static_cast<std::size_t>(world) * ShmSegment::kSlots * sizeof(Slot);
}

/// What each rank publishes before anything is mapped. host "-" means unknown.
struct Facts {
  std::string host = "-";
  pid_t pid = 0;
  int fd = -1;             // rank 0: the memory
  std::string word = "-";  // rank 0: the memory's first bytes

  std::string text() const {
    return host + " " + std::to_string(pid) + " " + std::to_string(fd) + " " + word;
  }
  static Facts parse(const std::string& text) {
    Facts facts;
    std::istringstream(text) >> facts.host >> facts.pid >> facts.fd >> facts.word;
    return facts;
  }
};

constexpr char kNotShared[] = "no ";  // precedes the reason in rank 0's answer

/// Rank 0's answer: kNotShared and the reason, or its memory and all process ids. `own`: its name.
std::string one_host(const std::vector<std::string>& texts, const std::string& own) {
  const Facts first = Facts::parse(texts.front());
  if (first.fd < 0) return std::string(kNotShared) + own + " cannot allocate the memory";
  std::string answer = std::to_string(first.fd) + " " + first.word;
  for (const std::string& text : texts) {
    const Facts other = Facts::parse(text);
    if (other.host == "-" || other.host != first.host)
      return std::string(kNotShared) + "not all on one host";
    answer += " " + std::to_string(other.pid);
  }
  return answer;
}

/// The parsed answer of one_host().
struct Host {
  int fd = -1;
  std::string word;
  std::vector<pid_t> pids;  // by rank

  explicit Host(const std::string& answer) {
    std::istringstream text(answer);
    text >> fd >> word;
    for (pid_t pid = 0; text >> pid;) pids.push_back(pid);
  }
};

std::unexpected<Error> impossible(const std::string& why) {
  return fail(ErrorKind::Environment, "ranks cannot share memory: " + why);
}

std::unexpected<Error> impossible_here(const std::string& what) {
  return impossible(what + ": " + std::strerror(errno));
}

}  // namespace

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::array<char, 128> names{};
  const ssize_t n = readlink("/proc/self/ns/pid", names.data(), names.size());
  if (boot.empty() || n <= 0) return "-";
  return boot + "/" + std::string(names.data(), static_cast<std::size_t>(n));
}

void Counter::wake() {
  if (sleepers.load(std::memory_order_seq_cst) == 0) return;
  syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Counter::publish(std::uint32_t now) {
  value.store(now, std::memory_order_seq_cst);
  wake();
}

void Counter::sleep(std::uint32_t seen, std::chrono::milliseconds time) {
  const timespec limit{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (value.load(std::memory_order_seq_cst) == seen) {
    syscall(SYS_futex, &value, FUTEX_WAIT, seen, &limit, nullptr, 0);
  }
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

ShmSegment::~ShmSegment() {
  munmap(memory_, total_bytes(world_));
}

RankBlock& ShmSegment::block(int rank) const {
  return *std::launder(reinterpret_cast<RankBlock*>(memory_ + kWordBytes) + rank);
}

Slot& ShmSegment::slot(int rank, std::uint32_t round) const {
  const std::size_t index = static_cast<std::size_t>(rank) * kSlots + round % kSlots;
  return *std::launder(
      reinterpret_cast<Slot*>(memory_ + kWordBytes + blocks_bytes(world_) + index * sizeof(Slot)));
}

bool ShmSegment::alive(int rank) const {
  const Fd& process = processes_[static_cast<std::size_t>(rank)];
  if (!process) return true;  // this rank itself
  pollfd entry{process.get(), POLLIN, 0};
  return poll(&entry, 1, 0) == 0;
}

Result<std::unique_ptr<ShmSegment>> ShmSegment::map(const Fd& fd, int world) {
  void* memory = mmap(nullptr, total_bytes(world), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return impossible_here("cannot map the memory");
  return std::unique_ptr<ShmSegment>(new ShmSegment(world, static_cast<char*>(memory)));
}

Result<std::unique_ptr<ShmSegment>> ShmSegment::open(Rendezvous& rendezvous) {
  const int rank = rendezvous.options().rank;
  const int world = rendezvous.options().world;
  const auto name = [&](int of) { return "rank " + std::to_string(rendezvous.name(of)); };
  Facts mine{.host = host_identity(), .pid = getpid()};
  Fd memory;
  if (rank == 0) {
    memory = Fd(memfd_create("dsj-comm", MFD_CLOEXEC));
    if (std::string word = random_word(); memory && !word.empty()) {
      // New memory is zero, which is every counter's initial value.
      if (ftruncate(memory.get(), static_cast<off_t>(total_bytes(world))) == 0 &&
          pwrite(memory.get(), word.data(), word.size(), 0) == static_cast<ssize_t>(word.size())) {
        mine.fd = memory.get();
        mine.word = word;
      }
    }
  }
  DSJ_TRY(const std::string answer, rendezvous.settle("shm", mine.text(), [&](const auto& texts) {
    return one_host(texts, name(0));
  }));
  if (answer.starts_with(kNotShared)) return impossible(answer.substr(sizeof kNotShared - 1));
  const Host host(answer);

  const auto attach = [&]() -> Result<std::unique_ptr<ShmSegment>> {
    if (rank != 0) {
      const std::string path =
          "/proc/" + std::to_string(host.pids.front()) + "/fd/" + std::to_string(host.fd);
      memory = Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (!memory) return impossible_here("cannot open the memory of " + name(0));
    }
    std::string word(host.word.size(), '\0');
    if (pread(memory.get(), word.data(), word.size(), 0) != static_cast<ssize_t>(word.size()) ||
        word != host.word) {
      return impossible("the opened file is not the memory of " + name(0));
    }
    DSJ_TRY(std::unique_ptr<ShmSegment> segment, map(memory, world));
    for (int other = 0; other < world; ++other) {
      const pid_t pid = host.pids[static_cast<std::size_t>(other)];
      Fd process;
      if (other != rank) {
        process = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
        if (!process) return impossible_here("cannot watch " + name(other));
      }
      segment->processes_.push_back(std::move(process));
    }
    return segment;
  };

  auto segment = attach();
  // One verdict for all ranks: if any rank cannot share memory, all fail.
  const std::string own = segment ? "" : segment.error().message + " (" + name(rank) + ")";
  DSJ_TRY(const std::string problem, rendezvous.settle("shm verdict", own, first_problem));
  if (!problem.empty()) return fail(ErrorKind::Environment, problem);
  return segment;
}

}  // namespace dsj::comm
