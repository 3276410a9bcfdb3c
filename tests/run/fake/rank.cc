// A rank without libtorch, for tests of everything around ranks: obeys the contract (contract.h),
// "trains" by a timer and saves small files. Ranks agree on every step over the real store socket,
// so that a dead peer is felt and a stop request reaches all at the same step.
//
// Without DSJ_STORE_FD (it is a user's own program then) rank 0 listens on MASTER_PORT itself.
//
// FAKE_STEP_MS       duration of a step, default 10
// FAKE_HOLD          a file: before the second step, ranks wait until it is there
// FAKE_FAULT         "attempt=1,rank=1,step=7,do=kill;...": what goes wrong, after that step's
// barrier.
//                    attempt=0 means every attempt. do: kill, segv, exit1, exit2, exit3, hang,
//                    garbage, stubborn (ignores SIGTERM from then on), child (leaves a grandchild
//                    behind)
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/weights/export_record.h"
#include "job/contract.h"
#include "job/flight_log.h"
#include "job/job_file.h"
#include "job/report/events.h"

namespace {

namespace fs = std::filesystem;
namespace report = dsj::report;
using namespace dsj::contract;
using nlohmann::json;

volatile sig_atomic_t stop_requested = 0;
void on_term(int) {
  stop_requested = 1;
}

int number(const char* name, int otherwise = 0) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

int event_fd = -1;
int64_t logging_steps = 1;
void write_event(const std::string& text) {
  if (write(event_fd, text.data(), text.size()) < 0) _exit(kExitFailed);
}
void event(const report::Event& event) {
  write_event(to_line(event));
}
[[noreturn]] void leave(int code, const char* reason, const std::string& message) {
  event(report::RankError{.reason = reason, .message = message});
  std::fprintf(stderr, "fake rank: %s\n", message.c_str());
  std::exit(code);
}
[[noreturn]] void peer_lost() {
  leave(kExitPeerLost, "PeerLost", "a peer closed its connection");
}

/// One byte a step between rank 0 and every other rank: "does anybody want to stop?"
class Peers {
 public:
  Peers(int rank, int world) : rank_(rank) {
    if (world == 1) return;
    if (rank == 0) {
      const int store = std::getenv(kEnvStoreFd) ? number(kEnvStoreFd) : listening();
      for (int i = 1; i < world; ++i) {
        const int fd = accept(store, nullptr, nullptr);
        if (fd < 0) leave(kExitEnvironment, "NoStore", "the store's socket was not handed over");
        peers_.push_back(fd);
      }
      return;
    }
    const Master master = resolved();
    for (int tries = 0; tries < 2400; ++tries) {  // two minutes: it may not listen yet
      const int fd = socket(master->ai_family, SOCK_STREAM, 0);
      if (connect(fd, master->ai_addr, master->ai_addrlen) == 0) {
        peers_.push_back(fd);
        return;
      }
      close(fd);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    peer_lost();
  }

  bool anybody_stops(bool own) {
    bool stop = own;
    if (rank_ == 0) {
      for (const int fd : peers_) stop |= receive(fd);
      for (const int fd : peers_) transmit(fd, stop);
      return stop;
    }
    for (const int fd : peers_) {
      transmit(fd, own);
      stop = receive(fd);
    }
    return stop;
  }

 private:
  using Master = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;
  /// Where rank 0 listens, an address of IPv4 or of IPv6.
  static Master resolved() {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST;
    if (getaddrinfo(std::getenv(kEnvMasterAddr), std::getenv(kEnvMasterPort), &hints, &found) != 0)
      leave(kExitEnvironment, "NoStore", "MASTER_ADDR is not an address");
    return {found, freeaddrinfo};
  }
  static int listening() {
    const Master master = resolved();
    const int fd = socket(master->ai_family, SOCK_STREAM, 0), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, master->ai_addr, master->ai_addrlen) != 0 || listen(fd, 64) != 0) {
      leave(kExitEnvironment, "NoStore", "cannot listen on MASTER_PORT");
    }
    return fd;
  }
  static bool receive(int fd) {
    for (char byte;;) {
      const ssize_t got = read(fd, &byte, 1);
      if (got == 1) return byte == 1;
      if (got < 0 && errno == EINTR) continue;
      peer_lost();
    }
  }
  static void transmit(int fd, bool flag) {
    const char byte = flag ? 1 : 0;
    if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1) peer_lost();
  }
  int rank_;
  std::vector<int> peers_;
};

struct Fault {
  int attempt = 0, rank = 0;
  int64_t step = 0;
  std::string what;
};

std::vector<Fault> read_faults() {
  std::vector<Fault> faults;
  std::istringstream all(std::getenv("FAKE_FAULT") ? std::getenv("FAKE_FAULT") : "");
  for (std::string one; std::getline(all, one, ';');) {
    Fault fault;
    std::istringstream fields(one);
    for (std::string field; std::getline(fields, field, ',');) {
      const std::string key = field.substr(0, field.find('='));
      const std::string value = field.substr(field.find('=') + 1);
      if (key == "attempt") fault.attempt = std::stoi(value);
      if (key == "rank") fault.rank = std::stoi(value);
      if (key == "step") fault.step = std::stoi(value);
      if (key == "do") fault.what = value;
    }
    faults.push_back(fault);
  }
  return faults;
}

void suffer(const std::string& what) {
  std::fprintf(stderr, "fake rank: about to %s\n", what.c_str());
  if (what == "kill") raise(SIGKILL);
  if (what == "segv") raise(SIGSEGV);
  if (what == "exit1") leave(kExitFailed, "TestFault", "told to fail");
  if (what == "exit2") leave(kExitBadInput, "DataError", "rows.json: row 7 is no row");
  if (what == "exit3") leave(kExitEnvironment, "NoSpace", "no space left on the device");
  if (what == "notfinite") leave(kExitNotFinite, kReasonNotFinite, "the loss is nan");
  if (what == "garbage") write_event("not an event\n{\"event\":\"step\"}\n\xff\xfe\n");
  if (what == "stubborn" || what == "hang") signal(SIGTERM, SIG_IGN);
  while (what == "hang") pause();
  if (what == "child" && fork() == 0) {
    signal(SIGTERM, SIG_IGN);
    setpgid(0, 0);
    for (;;) pause();
  }
}

int64_t newest_checkpoint(const fs::path& checkpoints) {
  int64_t newest = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(checkpoints, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
  }
  return newest;
}

void save(const fs::path& checkpoints, int64_t step, int rank) {
  const fs::path directory = checkpoints / ("step-" + std::to_string(step));
  fs::create_directories(directory);
  std::ofstream(directory / ("rank-" + std::to_string(rank))) << step << "\n";
  if (rank == 0) {
    event(report::Checkpoint{.step = step, .bytes = 100, .seconds = 0.001, .path = directory});
  }
}

void tell_step(int64_t step, int rank) {
  if (rank != 0) return event(report::Step{.step = step});
  event(report::Step{.step = step,
                     .loss = 10.0 / double(step),
                     .lr = 1e-3,
                     .grad_norm = 0,
                     .loss_scale = 1,
                     .skipped = false,
                     .tokens = 100,
                     .tokens_per_second = 5000,
                     .step_seconds = 0.02,
                     .wire_bytes = 0,
                     .host_rss_bytes = 0});
  if (step % logging_steps != 0) return;
  event(report::Log{.step = step, .loss = 10.0 / double(step), .lr = 1e-3});
}

}  // namespace

int main() {
  signal(SIGTERM, on_term);
  event_fd = number(kEnvEventFd, -1);
  const int rank = number(kEnvRank), world = number(kEnvWorldSize);
  std::ifstream in(std::getenv(kEnvJobFile));
  const auto job = dsj::job_file_from_json(json::parse(in, nullptr, false));
  if (!job) leave(kExitBadInput, "BadJobFile", job.error().to_string());
  std::printf("fake rank %d of %d, OMP_NUM_THREADS=%s\n", rank, world,
              std::getenv("OMP_NUM_THREADS"));
  std::fflush(stdout);
  event(report::Start{.pid = getpid(), .rank = rank});
  Peers peers(rank, world);
  const fs::path out = job->output_dir, checkpoints = out / kCheckpointsDir;
  const int64_t total = job->training.max_steps.value_or(10);
  logging_steps = job->training.logging_steps.value_or(1);
  const int64_t save_steps = job->training.save_steps.value_or(500);
  int64_t step = newest_checkpoint(checkpoints);
  peers.anybody_stops(false);  // nobody saves before everybody has looked
  if (rank == 0) {
    event(report::Resolved{.config = {{"train_batch_size", world}}, .total_steps = total});
    if (step > 0) event(report::Resumed{.step = step, .path = checkpoints});
  }
  const auto faults = read_faults();
  const auto flight = dsj::FlightLog::open(number(dsj::kEnvFlightFd, -1));
  if (!flight) leave(kExitEnvironment, "NoFlightLog", flight.error().to_string());
  uint64_t collectives = 0;
  while (step < total) {
    (*flight)->enter(dsj::FlightPhase::Training, step + 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(number("FAKE_STEP_MS", 10)));
    if (const char* hold = std::getenv("FAKE_HOLD"); hold && step == 1) {
      while (!fs::exists(hold)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    ++step;
    (*flight)->issued(++collectives, "all_reduce", "step", 1);
    const bool stop = peers.anybody_stops(stop_requested != 0);
    (*flight)->ended();
    tell_step(step, rank);
    for (const auto& fault : faults) {
      const bool now = fault.rank == rank && fault.step == step &&
                       (fault.attempt == 0 || fault.attempt == job->attempt);
      if (now) suffer(fault.what);
    }
    if (stop || step % save_steps == 0 || step == total) save(checkpoints, step, rank);
    if (stop && step < total) return kExitPreempted;
  }
  if (rank == 0) {
    dsj::PosixFiles files;
    const fs::path staging = out / ".model.staging";
    fs::create_directories(staging);
    std::ofstream(staging / "config.json") << "{}\n";
    if (!dsj::weights::record_export(files, staging, out / kModelDir)) return kExitFailed;
    fs::remove_all(out / kModelDir);
    fs::rename(staging, out / kModelDir);
    event(report::Exported{.path = out / kModelDir});
  }
  event(report::Done{.step = step});
  return kExitDone;
}
