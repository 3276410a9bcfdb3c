#include "agent/loop.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>

#include "agent/agent.h"
#include "agent/orphan.h"
#include "agent/ranks/spawn.h"
#include "agent/status/reports.h"
#include "agent/status/status_publisher.h"
#include "agent/turns.h"
#include "agent/wire/http_transport.h"
#include "common/files/posix_files.h"
#include "common/log.h"
#include "common/startup_trace.h"
#include "job/contract.h"

namespace dsj::agent {
namespace {

int exit_code_of(const Error& error) {
  log::error(error.to_string());
  return error.kind == ErrorKind::BadInput ? contract::kExitBadInput : contract::kExitEnvironment;
}

/// Passes reports on, and knows the last ones.
class KeptReports final : public Reports {
 public:
  explicit KeptReports(PipeReports& pipe) : pipe_(pipe) {}
  void report(const report::Report& told) override {
    if (const auto* end = std::get_if<report::End>(&told)) last_.end = *end;
    if (const auto* saved = std::get_if<report::Checkpoint>(&told)) last_.saved = *saved;
    if (const auto* attempt = std::get_if<report::Attempt>(&told))
      last_.world_size = attempt->world_size;
    pipe_.report(told);
  }
  bool flush() override { return pipe_.flush(); }
  int fd() const override { return pipe_.fd(); }
  const LastReports& last() const { return last_; }

 private:
  PipeReports& pipe_;
  LastReports last_;
};

struct Transports {
  std::unique_ptr<HttpServer> server;
  std::unique_ptr<HttpClient> client;
};

/// A single worker needs no transport.
Result<Transports> open_transports(const AgentConfig& config, int worker) {
  Transports transports;
  if (config.replicas == 1) return transports;
  const std::string endpoint_file = path_join(config.run_dir, "endpoint.json");
  if (worker != 0) {
    transports.client =
        std::make_unique<HttpClient>([endpoint_file] { return read_endpoint(endpoint_file); },
                                     Credentials{[key = config.key] { return key; }, {}});
    return transports;
  }
  DSJ_TRY(
      transports.server,
      HttpServer::open(config.address, 0, std::make_shared<KeyGate>(config.key), config.replicas));
  DSJ_TRY_STATUS(write_endpoint(endpoint_file, transports.server->endpoint()));
  return transports;
}

Result<int> run(const LoopOptions& options) {
  DSJ_TRY(const int signals, signal_fd({SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCHLD}));
  signal(SIGPIPE, SIG_IGN);
  PosixFiles files;
  DSJ_TRY(const std::string text, files.read_all(options.config_path));
  DSJ_TRY(const AgentConfig config, agent_config_from_text(text, options.config_path));
  if (options.worker < 0 || options.worker >= config.replicas) {
    return bad_input("worker " + std::to_string(options.worker) + " of " +
                     std::to_string(config.replicas) + " workers");
  }
  DSJ_TRY(const int64_t log_bytes, log_bytes_max(std::getenv(kEnvLogBytesMax)));
  PosixRanks ranks(log_bytes);
  PipeReports pipe(options.report_fd);
  KeptReports reports(pipe);
  DSJ_TRY(const Transports transports, open_transports(config, options.worker));
  const AgentPorts ports{.ranks = ranks,
                         .files = files,
                         .reports = reports,
                         .server = transports.server.get(),
                         .client = transports.client.get()};
  DSJ_TRY(Agent agent,
          Agent::make(config, options.worker, options.incarnation, ports, steady_time()));
  startup::recorder().stage_ends("settings");
  while (!agent.exit_code()) {
    for (int number : read_signals(signals)) {
      if (number == SIGQUIT) {
        agent.want_stacks(milliseconds_since_1970(), steady_time());
      } else if (number != SIGCHLD) {
        agent.stop(steady_time());
      }
    }
    agent.turn(steady_time());
    if (!agent.exit_code()) {
      wait_for_events(agent, signals, ports, agent.next_turn(steady_time()));
    }
  }
  for (int i = 0; reports.flush() && i < 20; ++i) {  // a slow reader still gets the last reports
    pollfd entry{reports.fd(), POLLOUT, 0};
    poll(&entry, 1, 100);
  }
  if (pipe.reader_gone()) {
    const Status told = write_end(files, config.job.output_dir, reports.last(),
                                  rfc3339(std::chrono::system_clock::now()));
    if (!told) log::error(told.error().to_string());
  }
  return *agent.exit_code();
}

}  // namespace

int run_agent(const LoopOptions& options) {
  const std::string name = "agent " + std::to_string(options.worker);
  log::init(name);
  if (const char* trace = std::getenv(contract::kEnvStartupTrace))
    startup::recorder().begin(name, trace);
  startup::recorder().stage_ends("exec and libraries");
  const auto code = run(options);
  return code ? *code : exit_code_of(code.error());
}

}  // namespace dsj::agent
