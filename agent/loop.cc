#include "agent/loop.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include "agent/agent.h"
#include "agent/orphan.h"
#include "agent/ranks/spawn.h"
#include "agent/status/reports.h"
#include "agent/status/status_publisher.h"
#include "agent/status/trainer_status.h"
#include "agent/turns.h"
#include "agent/wire/http_transport.h"
#include "common/files/posix_files.h"
#include "common/log.h"
#include "common/startup_trace.h"
#include "job/contract.h"
#include "kube/api_transport.h"

namespace dsj::agent {
namespace {

/// How long the end of a run waits for Kubeflow Trainer.
constexpr Time kLastProgress{5'000};

int exit_code_of(const Error& error) {
  log::error(error.to_string());
  return error.kind == ErrorKind::BadInput ? contract::kExitBadInput : contract::kExitEnvironment;
}

/// Forwards reports and keeps the last ones.
class KeptReports final : public Reports {
 public:
  /// `trainer` is Kubeflow Trainer; null if this is not a TrainJob.
  KeptReports(PipeReports& pipe, Reports* trainer) : pipe_(pipe), trainer_(trainer) {}
  void report(const report::Report& told) override {
    if (const auto* end = std::get_if<report::End>(&told)) last_.end = *end;
    if (const auto* saved = std::get_if<report::Checkpoint>(&told)) last_.saved = *saved;
    if (const auto* attempt = std::get_if<report::Attempt>(&told))
      last_.world_size = attempt->world_size;
    pipe_.report(told);
    if (trainer_) trainer_->report(told);
  }
  bool flush() override { return pipe_.flush(); }
  int fd() const override { return pipe_.fd(); }
  const LastReports& last() const { return last_; }

 private:
  PipeReports& pipe_;
  Reports* const trainer_;
  LastReports last_;
};

/// For worker 0 in a pod of a TrainJob.
struct TrainJob {
  std::unique_ptr<kube::Transport> transport;
  std::unique_ptr<TrainerStatus> status;
  std::optional<std::string> problem;  ///< why there is no status

  /// Each reason is returned once.
  std::optional<std::string> take_problem() {
    return problem || !status ? std::exchange(problem, std::nullopt) : status->take_problem();
  }
};

/// Problems with Trainer do not end a run.
TrainJob enter_train_job(int worker) {
  TrainJob found;
  if (worker != 0) return found;
  const auto server = trainer_server([](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  });
  if (server && !*server) return found;
  auto transport = server
                       ? kube::make_api_transport((*server)->access)
                       : Result<std::unique_ptr<kube::Transport>>(std::unexpected(server.error()));
  if (!transport) {
    found.problem = transport.error().to_string();
    return found;
  }
  found.transport = std::move(*transport);
  found.status =
      std::make_unique<TrainerStatus>(*found.transport, kube::system_clock(), (*server)->path);
  return found;
}

void tell_problem(TrainJob& train_job, Reports& reports) {
  const auto problem = train_job.take_problem();
  if (!problem) return;
  const std::string told = "the progress does not reach Kubeflow Trainer: " + *problem;
  log::warn(told);
  reports.report(report::Warning{.message = told});
}

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
  DSJ_TRY(transports.server,
          HttpServer::open(config.address, config.join_port, std::make_shared<KeyGate>(config.key),
                           config.replicas));
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
  TrainJob train_job = enter_train_job(options.worker);
  KeptReports reports(pipe, train_job.status.get());
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
    tell_problem(train_job, reports);
    if (!agent.exit_code()) {
      wait_for_events(agent, signals, ports, agent.next_turn(steady_time()));
    }
  }
  if (train_job.status) train_job.status->finish(kLastProgress);
  tell_problem(train_job, reports);
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
