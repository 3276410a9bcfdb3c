#include "agent/pod_loop.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "agent/agent.h"
#include "agent/gang/rank_end.h"
#include "agent/pod.h"
#include "agent/pod_join.h"
#include "agent/pod_node.h"
#include "agent/ranks/log_mirror.h"
#include "agent/ranks/spawn.h"
#include "agent/status/agent_metrics.h"
#include "agent/status/job_watch.h"
#include "agent/status/reports.h"
#include "agent/status/status_publisher.h"
#include "agent/status/termination.h"
#include "agent/turns.h"
#include "common/files/posix_files.h"
#include "common/log.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "job/node_health.h"
#include "job/report/step_line.h"
#include "kube/api_transport.h"
#include "kube/kubeconfig.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

/// How long worker 0 waits for the API server before it starts without an answer.
constexpr Time kFirstLook{10'000};
constexpr Time kLastOutput{5'000};

bool ends_the_pod(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

void write_termination(const std::string& path, const report::TerminationMessage& termination) {
  // Not by a rename: the kubelet reads the file that it mounted.
  std::ofstream file(path, std::ios::trunc);
  file << to_text(termination);
  file.close();
  if (!file) log::error("cannot write the termination message: " + path);
}

/// Forwards reports to the status and the metrics, writes steps to the log, and keeps the last
/// failure for the termination message.
class PodReports final : public Reports {
 public:
  PodReports(StatusPublisher* publisher, AgentMetrics& metrics)
      : publisher_(publisher), metrics_(metrics) {}
  void report(const report::Report& told) override {
    if (const auto* failure = std::get_if<report::Failure>(&told)) last_failure = *failure;
    metrics_.take(told);
    if (const auto line = logged_.take(told)) log::info(step_line(*line));
    if (publisher_) publisher_->report(told);
  }
  bool flush() override { return false; }
  int fd() const override { return -1; }

  std::optional<report::Failure> last_failure;

 private:
  StatusPublisher* publisher_;
  AgentMetrics& metrics_;
  report::LoggedSteps logged_;
};

/// Worker 0's connections to the API server.
struct Cluster {
  std::unique_ptr<kube::Transport> transport;
  std::unique_ptr<kube::Client> client;
  std::unique_ptr<StatusPublisher> publisher;
  std::unique_ptr<JobWatch> watch;
};

class PodAgent {
 public:
  explicit PodAgent(const PodOptions& options) : root_(options.root), command_(options.command) {}
  ~PodAgent() { fetches_.cancel(); }
  Result<int> run();

 private:
  std::string mounted(const char* folder, const char* file) const {
    return path_join(root_ + folder, file);
  }
  Status read_pod();
  Status enter_cluster();
  Status prepare();
  bool node_is_fit();
  void look_again(Agent& agent, int running);
  void heed_the_link(Agent& agent);
  void heed_the_fence(Agent& agent, int running);
  void heed_the_keys(Agent& agent);
  void tell_problems();
  void look_at_the_job();
  void obey_the_job(Agent& agent);
  void take_signals(Agent& agent, int signals);
  void stop(Agent& agent, const std::string& why);
  void depart(Agent& agent, const std::string& why);
  void turn(Agent& agent, int signals, const AgentPorts& ports);
  void wait_until_stored(int signals);

  const std::string root_;
  const std::vector<std::string> command_;
  Pod pod_;
  WorkerJob job_;
  AgentConfig config_;
  Cluster cluster_;
  std::shared_ptr<AgentMetrics> metrics_ = std::make_shared<AgentMetrics>();
  std::unique_ptr<HttpListener> metrics_server_;
  kube::Cancel fetches_;
  PodJoin join_{root_, fetches_};
  std::unique_ptr<LogMirror> mirror_;
  std::unique_ptr<NodeCheck> node_;
  std::unique_ptr<LinkMeter> links_;
  size_t node_problems_ = 0;  ///< from the last check
  std::string slow_link_;     ///< agent 0's last finding about this node's link
  std::string unfit_;         ///< why this pod moves to another node
  bool keyless_ = false;      ///< worker 0's key was never mounted
  Time keys_due_{0};          ///< when it must be mounted; 0 once it is
  int ranks_before_ = 0;      ///< number of ranks that ran at the last turn
  PosixFiles files_;
  int64_t stacks_seen_ = 0;  ///< the newest request for stacks
  Time next_fence_look_{0};
  bool stopping_ = false, departing_ = false, abandoned_ = false;
};

Status PodAgent::read_pod() {
  DSJ_TRY(pod_, pod_from_environment([](const char* name) -> std::string {
            const char* value = std::getenv(name);
            return value ? value : "";
          }));
  log::init("worker " + std::to_string(pod_.worker));
  const std::string path = mounted(kConfigMountPath, kWorkerJobFile);
  DSJ_TRY(const std::string text, files_.read_all(path, 4 << 20));
  DSJ_TRY(job_, worker_job_from_text(text, path));
  const std::string own = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  DSJ_TRY(config_, pod_config(pod_, job_, root_ + kScratchMountPath, own, command_));
  return {};
}

Status PodAgent::enter_cluster() {
  if (pod_.worker != 0) return {};
  DSJ_TRY(const kube::Access access, kube::find_access());
  DSJ_TRY(cluster_.transport, kube::make_api_transport(access));
  // The status thread retries itself, so short attempts keep its document fresh.
  cluster_.client = std::make_unique<kube::Client>(
      *cluster_.transport, kube::system_clock(),
      kube::ClientOptions{
          .attempts = 2, .deadline = Time(20'000), .request_timeout = Time(10'000)});
  cluster_.publisher = std::make_unique<StatusPublisher>(*cluster_.client, kube::system_clock(),
                                                         JobName{pod_.ns, pod_.job, pod_.job_uid},
                                                         config_.replicas * config_.slots);
  cluster_.watch =
      std::make_unique<JobWatch>(*cluster_.client, kube::system_clock(), pod_.ns, pod_.job);
  return {};
}

Status PodAgent::prepare() {
  DSJ_TRY_STATUS(files_.make_dirs(config_.run_dir));
  DSJ_TRY_STATUS(files_.make_dirs(path_join(config_.job.output_dir, kLogsDir)));
  DSJ_TRY_STATUS(files_.make_dirs(path_join(config_.job.output_dir, kCheckpointsDir)));
  DSJ_TRY(metrics_server_, HttpListener::open(pod_.ip, kMetricsPort, {}, metrics_));
  mirror_ = std::make_unique<LogMirror>(STDOUT_FILENO);
  return {};
}

/// Checks the node and reports the findings. Returns false if this pod's ranks must not start on
/// it.
bool PodAgent::node_is_fit() {
  if (!node_) {
    node_ = make_node_check(pod_, config_, root_, cluster_.transport.get(), fetches_);
  }
  const auto found = node_->look();
  node_problems_ = found.problems;
  tell_problems();
  for (const std::string& what : found.told) log::warn("this worker's node: " + what);
  unfit_ = found.unfit;
  if (!unfit_.empty()) log::error("this node is not fit for ranks: " + unfit_);
  return unfit_.empty();
}

void PodAgent::tell_problems() {
  metrics_->node_problems(node_problems_ + !slow_link_.empty());
}

/// Handles agent 0's finding about this node's link.
void PodAgent::heed_the_link(Agent& agent) {
  const std::string& told = agent.worker().slow_link;
  if (told == slow_link_) return;
  slow_link_ = told;
  tell_problems();
  if (told.empty() || stopping_ || departing_ || abandoned_) return;
  if (pod_.node_health.action != jobspec::NodeHealthAction::Move) {
    return log::warn("this worker's node: " + told);
  }
  unfit_ = told;
  log::error("this node is not fit for ranks: " + told);
  depart(agent, "the link of its node is too slow");
}

/// Checks the node again after a rank of this worker failed by itself: a GPU may be lost, or the
/// clock wrong. The next attempt then waits for this worker's successor on another node.
void PodAgent::look_again(Agent& agent, int running) {
  const bool ended = std::exchange(ranks_before_, running) > 0 && running == 0;
  if (!ended || stopping_ || departing_ || abandoned_) return;
  const auto failed = [](const RankState& rank) { return end_of(rank) == RankEnd::Failed; };
  if (!std::ranges::any_of(agent.worker().report.ranks, failed)) return;
  if (!node_is_fit()) depart(agent, "its node is not fit for another attempt");
}

/// Reads the attempt and the budget from the job. Without an answer, the attempt file decides.
void PodAgent::look_at_the_job() {
  if (!cluster_.watch) return;
  const Time end = steady_time() + kFirstLook;
  while (!cluster_.watch->view() && steady_time() < end) usleep(20'000);
  const auto view = cluster_.watch->view();
  if (!view) {
    log::warn("the API server does not answer; the attempt file decides which attempt is next");
    return;
  }
  config_.last_attempt = view->attempt;
  stacks_seen_ = view->stacks;  // an earlier incarnation has answered it
  if (view->restarts) config_.budget = *view->restarts;
  config_.grace = view->save_timeout.value_or(config_.grace);
  if (!config_.user_program) config_.stall = view->step_timeout.value_or(config_.stall);
}

void PodAgent::stop(Agent& agent, const std::string& why) {
  if (stopping_) return;
  stopping_ = true;
  log::info("stopping: " + why);
  if (cluster_.publisher) cluster_.publisher->stopping();
  agent.stop(steady_time());
}

/// After a signal from the kubelet: this pod is removed, the job continues.
void PodAgent::depart(Agent& agent, const std::string& why) {
  if (departing_) return;
  departing_ = true;
  log::info("leaving: " + why);
  agent.depart(steady_time());
}

void PodAgent::obey_the_job(Agent& agent) {
  if (!cluster_.watch) return;
  if (const auto view = cluster_.watch->view()) {
    const std::string why = view->uid.empty() || view->uid == pod_.job_uid
                                ? stop_reason(*view, pod_.revision)
                                : "this worker's job is gone, and another job has its name";
    if (!why.empty()) stop(agent, why);
    if (view->restarts) agent.account(view->accounted, *view->restarts, steady_time());
    const Time grace = view->save_timeout.value_or(config_.grace);
    agent.wait_for(
        grace, config_.user_program ? config_.stall : view->step_timeout.value_or(config_.stall));
    if (view->stacks > stacks_seen_) {
      stacks_seen_ = view->stacks;
      agent.want_stacks(view->stacks, steady_time());
    }
  }
  if (!abandoned_ && cluster_.publisher->state() == StatusPublisher::State::Superseded) {
    abandoned_ = true;
    agent.abandon("the job shows a newer attempt than this agent's", steady_time());
  }
}

/// Ends a user's program if another worker 0 runs the job. Our own ranks check the attempt file
/// before they publish; a user's program does not. If this node was cut off and a successor runs
/// elsewhere, only that file shows it.
void PodAgent::heed_the_fence(Agent& agent, int running) {
  constexpr Time kEvery{3'000};
  const Time now = steady_time();
  if (!config_.user_program || pod_.worker != 0 || abandoned_ || running == 0) return;
  if (now < next_fence_look_) return;
  next_fence_look_ = now + kEvery;
  const auto newer = agent.newer_attempt();
  if (!newer) return;
  abandoned_ = true;
  agent.abandon(
      "the attempt file has attempt " + std::to_string(*newer) + ": another worker 0 runs this job",
      now);
}

/// Ends this pod if its key's Secret was deleted before it was mounted. The operator starts a new
/// run with another key.
void PodAgent::heed_the_keys(Agent& agent) {
  if (keys_due_ == Time(0)) return;
  if (!join_.lacks_key()) {
    keys_due_ = Time(0);
    return;
  }
  if (steady_time() < keys_due_ || stopping_ || departing_ || abandoned_) return;
  keyless_ = true;
  keys_due_ = Time(0);
  log::error("no key of worker 0's agent was mounted in " + std::to_string(kKeyPatience.count()) +
             " s; its Secret is gone");
  depart(agent, "it cannot authenticate itself to the other workers");
}

void PodAgent::take_signals(Agent& agent, int signals) {
  for (const int number : read_signals(signals)) {
    if (ends_the_pod(number)) {
      depart(agent, "signal " + std::to_string(number));
    } else if (number != SIGCHLD && config_.user_program) {
      for (const auto& rank : agent.rank_logs()) {
        if (rank.running) signal_group(rank.pid, number);
      }
    }
  }
}

void PodAgent::turn(Agent& agent, int signals, const AgentPorts& ports) {
  take_signals(agent, signals);
  obey_the_job(agent);
  agent.turn(steady_time());
  const auto ranks = agent.rank_logs();
  int running = 0;
  for (const auto& rank : ranks) {
    running += rank.running;
    if (!rank.file.empty()) mirror_->follow(rank.rank, rank.file, rank.from);
  }
  mirror_->turn();
  look_again(agent, running);
  heed_the_link(agent);
  heed_the_fence(agent, running);
  heed_the_keys(agent);
  metrics_->turned(running, cluster_.publisher.get());
  bury_orphans([&](pid_t pid) {
    return std::ranges::any_of(ranks,
                               [&](const auto& rank) { return rank.running && rank.pid == pid; });
  });
  if (!agent.exit_code()) {
    wait_for_events(agent, signals, ports, agent.next_turn(steady_time()));
  }
}

/// Waits for the end to be stored. While the API server is down, the pod's end would not be seen
/// anyway, so waiting costs nothing.
void PodAgent::wait_until_stored(int signals) {
  if (!cluster_.publisher) return;
  bool told = false;
  while (!cluster_.publisher->settled()) {
    departing_ |= std::ranges::any_of(read_signals(signals), ends_the_pod);
    const Time taken = refusals_taken(cluster_.watch->view(), departing_);
    if (cluster_.publisher->refused_for() > taken) {
      log::error("the API server has refused the status of this job for " +
                 std::to_string(taken.count() / 1000) + " s; its end is not stored");
      return;
    }
    metrics_->turned(0, cluster_.publisher.get());
    usleep(50'000);
    if (!std::exchange(told, true)) log::info("the end is being stored in the job's status");
  }
}

Result<int> PodAgent::run() {
  DSJ_TRY(const int signals, signal_fd({SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2}));
  ::signal(SIGPIPE, SIG_IGN);
  // for pods that share a process namespace; process 1 always is one
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  DSJ_TRY_STATUS(read_pod());
  DSJ_TRY_STATUS(prepare());
  DSJ_TRY_STATUS(enter_cluster());
  if (!node_is_fit()) {
    write_termination(root_ + kTerminationLog, {.reason = kReasonUnhealthyNode, .message = unfit_});
    return kExitUnhealthyNode;
  }
  DSJ_TRY_STATUS(join_.open(pod_, config_.replicas, cluster_.transport.get()));
  keys_due_ = steady_time() + kKeyPatience;
  links_ = make_link_meter(pod_, config_.replicas);
  look_at_the_job();
  DSJ_TRY(const int64_t log_bytes, log_bytes_max(std::getenv(kEnvLogBytesMax)));
  PosixRanks ranks(log_bytes);
  PodReports reports(cluster_.publisher.get(), *metrics_);
  const AgentPorts ports{.ranks = ranks,
                         .files = files_,
                         .reports = reports,
                         .server = join_.server(),
                         .client = join_.client(),
                         .links = links_.get()};
  DSJ_TRY(Agent agent, Agent::make(config_, pod_.worker, pod_.incarnation, ports, steady_time()));
  while (!agent.exit_code()) turn(agent, signals, ports);
  mirror_->finish(kLastOutput);
  std::vector<int> numbers;
  for (const auto& rank : agent.rank_logs()) numbers.push_back(rank.rank);
  report::TerminationMessage termination = termination_of(
      agent.worker(), numbers, abandoned_ ? nullptr : agent.outcome(), reports.last_failure);
  if (abandoned_) termination.reason = "Superseded";
  const bool moves = !unfit_.empty() && *agent.exit_code() == kExitPreempted;
  if (moves) {
    termination.reason = kReasonUnhealthyNode;
    termination.message = unfit_;
  }
  const bool keyless = keyless_ && *agent.exit_code() == kExitPreempted;
  if (keyless) {
    termination.reason = kReasonKeyMissing;
    termination.message =
        "the Secret with the key of worker 0's agent is gone; the operator starts a new run";
  }
  write_termination(root_ + kTerminationLog, termination);
  wait_until_stored(signals);
  if (keyless) return kExitKeyMissing;
  return moves ? kExitUnhealthyNode : *agent.exit_code();
}

}  // namespace

int run_pod(const PodOptions& options) {
  log::init("worker");
  PodAgent pod(options);
  const auto code = pod.run();
  if (code) return *code;
  log::error(code.error().to_string());
  write_termination(options.root + kTerminationLog, termination_of(code.error()));
  return code.error().kind == ErrorKind::BadInput ? kExitBadInput : kExitEnvironment;
}

}  // namespace dsj::agent
