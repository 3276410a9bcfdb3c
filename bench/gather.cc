// What it costs worker 0's agent that thousands of others join it: fake agents that speak the real
// protocol, over TLS, from another process of this machine. bench_gather WORKERS [SECONDS]
//
// Worker 0 is the real agent with the real server. A fake agent is the real state machine of a worker with
// the real client and a connection of its own; its rank is a number. Counts are of worker 0's process.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "agent/agent.h"
#include "agent/join/join_keys.h"
#include "agent/turns.h"
#include "agent/wire/http_transport.h"
#include "common/check.h"
#include "common/files/posix_files.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "operator/webhook/certificate.h"

namespace dsj::agent {
namespace {

constexpr char kHost[] = "127.0.0.1", kToken[] = "a key in place of a token";

// ---- the others

struct FakeAgent {
  Worker worker;
  HttpClient client;
  int workers;
  Time next_beat{0}, sent_at{0};
  bool waits = false, wanted = true, told_end = false;
  int failures = 0;
  int64_t sequence = 0;

  FakeAgent(int number, int workers_, const FindServer& find, const Credentials& credentials)
      : worker({.worker = number, .lease = Time(10'000), .join_timeout = Time(600'000)},
               steady_time()),
        client(find, credentials, Time(5000)),
        workers(workers_) {}

  void take(const WorkerEvent& event, Time now) {
    for (const auto& command : step(worker, event, now)) {
      wanted |=
          std::holds_alternative<SendBeat>(command) || std::holds_alternative<ExitAgent>(command);
    }
  }
  void turn(Time now, bool over) {
    if (const auto answer = client.receive()) {
      waits = false;
      failures = *answer ? 0 : failures + 1;
      next_beat = now + (*answer ? (*answer)->next_beat
                                 : next_try(worker.config.worker, workers, failures));
      if (*answer) take(Heard{**answer, sent_at}, now);
      if (!*answer) wanted = false;
    }
    if (over && !told_end && !worker.report.ranks.empty()) {
      told_end = true;
      take(RankExited{0, contract::kExitDone, 0, ""}, now);
    }
    take(WorkerTick{}, now);
    if (waits || (now < next_beat && !wanted)) return;
    WorkerReport report = worker.report;
    report.sequence = ++sequence;
    sent_at = now;
    waits = true;
    wanted = false;
    client.send(report);
  }
};

/// Until worker 0's process closes `orders`. A byte in it: the ranks end.
void run_others(int workers, int port, const std::string& authority, int orders) {
  set_http_threads(4);
  const Credentials credentials{[] { return kToken; }, {}, authority};
  const FindServer find = [port]() -> Result<Endpoint> { return Endpoint{kHost, port}; };
  std::vector<std::unique_ptr<FakeAgent>> agents;
  for (int w = 1; w < workers; ++w) {
    agents.push_back(std::make_unique<FakeAgent>(w, workers, find, credentials));
  }
  for (bool over = false;;) {
    pollfd entry{orders, POLLIN, 0};
    if (poll(&entry, 1, 5) > 0) {
      char byte;
      if (read(orders, &byte, 1) <= 0) _exit(0);
      over = true;
    }
    for (auto& one : agents) {
      if (!one->worker.exited || one->wanted) one->turn(steady_time(), over);
    }
  }
}

// ---- worker 0

struct QuietRanks final : Ranks {
  std::optional<ChildExit> exit;
  Result<RankProcess> start(const RankStart&) override { return RankProcess{.pid = 1}; }
  void signal(const RankProcess&, int) override {}
  std::string read_events(const RankProcess&) override { return ""; }
  std::optional<ChildExit> poll_exit(const RankProcess&) override {
    return std::exchange(exit, std::nullopt);
  }
  void forget(const RankProcess&) override {}
  RankSight look(const RankProcess&) override { return {}; }
  bool begin_stacks(std::vector<RankPid>) override { return false; }
  std::optional<std::vector<RankStacks>> taken_stacks() override { return std::nullopt; }
  std::string last_words(const RankProcess&, size_t) override { return ""; }
  Result<StoreSocket> open_store(const std::string&) override { return StoreSocket{-1, 1}; }
  void close_store(const StoreSocket&) override {}
};

struct Told final : Reports {
  bool started = false, ended = false;
  void report(const report::Report& told) override {
    started |= std::holds_alternative<report::Attempt>(told);
    ended |= std::holds_alternative<report::End>(told);
  }
  bool flush() override { return false; }
  int fd() const override { return -1; }
};

struct CountingGate final : JoinGate {
  std::atomic<int64_t> beats = 0;
  KeyGate gate{kToken};
  std::expected<Caller, Denied> admit(std::string_view authorization) override {
    return gate.admit(authorization);
  }
  std::expected<void, Denied> permit(const Caller& caller, int worker,
                                     int64_t incarnation) override {
    ++beats;
    return gate.permit(caller, worker, incarnation);
  }
};

struct Cost {
  double seconds, cpu, resident_mib, mib;
  int64_t beats, handshakes, secured, gone;
};

Cost cost_now(const CountingGate& gate, const HttpCounts& counts) {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  std::ifstream file("/proc/self/statm");
  size_t size = 0, resident = 0;
  file >> size >> resident;
  double bytes = 0;  // of the connections that are open, with TLS
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t length = sizeof info;
    const int fd = std::atoi(entry.path().filename().c_str());
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    bytes += static_cast<double>(info.tcpi_bytes_received + info.tcpi_bytes_acked);
  }
  return {.seconds = static_cast<double>(steady_time().count()) / 1000,
          .cpu = seconds(use.ru_utime) + seconds(use.ru_stime),
          .resident_mib = static_cast<double>(resident) * 4096 / (1 << 20),
          .mib = bytes / (1 << 20),
          .beats = gate.beats,
          .handshakes = counts.handshakes,
          .secured = counts.secured,
          .gone = counts.gone};
}

void tell(const char* what, int workers, const Cost& from, const Cost& to) {
  const auto count = [](int64_t number) { return static_cast<long long>(number); };
  std::printf("| %d | %s | %.1f | %lld, %lld, %lld | %lld | %.1f | %.2f | %.0f |\n", workers, what,
              to.seconds - from.seconds, count(to.handshakes - from.handshakes),
              count(to.secured - from.secured), count(to.gone - from.gone),
              count(to.beats - from.beats), to.mib - from.mib, to.cpu - from.cpu, to.resident_mib);
  std::fflush(stdout);
}

void run(int workers, double steady_seconds) {
  const std::string folder =
      std::filesystem::temp_directory_path() / ("gather-" + std::to_string(getpid()));
  PosixFiles files;
  for (const char* part : {"/logs", "/checkpoints", "/run", "/keys"}) {
    std::filesystem::create_directories(folder + part);
  }
  const auto key = op::issue_certificate({kHost}, "bench/gather", std::chrono::system_clock::now(),
                                         kKeyLifetime, op::kJobOrganization);
  DSJ_CHECK(key.has_value(), "no key");
  const std::pair<std::string, std::string> written[] = {{kJoinChainFile, key->chain_pem},
                                                         {kJoinKeyFile, key->key_pem}};
  for (const auto& [name, text] : written) std::ofstream(folder + "/keys/" + name) << text;

  int ports_pipe[2], orders[2];
  DSJ_CHECK(pipe(ports_pipe) == 0 && pipe(orders) == 0, "pipe");
  const pid_t others = fork();
  if (others == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(orders[1]);
    int port = 0;
    if (read(ports_pipe[0], &port, sizeof port) != sizeof port) _exit(1);
    run_others(workers, port, key->authority_pem, orders[0]);
  }
  close(orders[0]);

  JoinKey own(folder + "/keys", key->authority_pem);
  auto gate = std::make_shared<CountingGate>();
  auto server = HttpServer::open(kHost, 0, gate, workers, [&] { return own.server(); });
  DSJ_CHECK(server.has_value(), "%s", server.error().to_string().c_str());
  AgentConfig config;
  config.job.name = "gather";
  config.job.output_dir = folder;
  config.job.ds_config = nlohmann::json::object();
  config.replicas = workers;
  config.run_dir = folder + "/run";
  config.rank_command = {"none"};
  config.silence = Time(15'000);
  QuietRanks ranks;
  Told told;
  const AgentPorts ports{
      .ranks = ranks, .files = files, .reports = told, .server = server->get(), .client = nullptr};
  auto agent = Agent::make(config, 0, 1, ports, steady_time());
  DSJ_CHECK(agent.has_value(), "%s", agent.error().to_string().c_str());
  const Cost idle = cost_now(*gate, (*server)->counts());
  const int port = (*server)->endpoint().port;
  DSJ_CHECK(write(ports_pipe[1], &port, sizeof port) == sizeof port, "write");
  const auto until = [&](auto&& holds, double seconds) {
    const Time end = steady_time() + Time(static_cast<int64_t>(seconds * 1000));
    while (!holds() && steady_time() < end && !agent->exit_code()) {
      agent->turn(steady_time());
      wait_for_events(*agent, -1, ports, std::min(end, agent->next_turn(steady_time())));
    }
  };
  until([&] { return told.started; }, 300);
  if (!told.started) tell("NOT gathered", workers, idle, cost_now(*gate, (*server)->counts()));
  DSJ_CHECK(told.started, "the gang did not gather in 300 s");
  const Cost gathered = cost_now(*gate, (*server)->counts());
  tell("gathering", workers, idle, gathered);
  until([] { return false; }, steady_seconds);
  const Cost steady = cost_now(*gate, (*server)->counts());
  tell("running", workers, gathered, steady);
  ranks.exit = ChildExit{contract::kExitDone, 0};
  DSJ_CHECK(write(orders[1], "e", 1) == 1, "write");
  until([&] { return told.ended; }, 120);
  DSJ_CHECK(told.ended && agent->outcome() && agent->outcome()->exit_code == contract::kExitDone,
            "it did not end Completed");
  tell("all ranks end", workers, steady, cost_now(*gate, (*server)->counts()));
  close(orders[1]);
  waitpid(others, nullptr, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace dsj::agent

int main(int argc, char** argv) {
  const int workers = argc > 1 ? std::atoi(argv[1]) : 512;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 10;
  if (workers < 2) {
    std::fprintf(stderr, "bench_gather WORKERS [SECONDS]: at least 2 workers\n");
    return 2;
  }
  std::printf(
      "| workers | | seconds | handshakes begun, ended well, peers gone before | beats | MiB | CPU "
      "s | MiB of "
      "memory |\n|---|---|---|---|---|---|---|---|\n");
  std::fflush(stdout);
  signal(SIGPIPE, SIG_IGN);
  setenv("OMP_NUM_THREADS", "1", 1);
  dsj::agent::run(workers, seconds);
}
