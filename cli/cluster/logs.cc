// dsj logs NAME [--rank N]: the log of the rank's pod, or with --rank the rank's lines alone.
#include <cstdio>
#include <deque>

#include "cli/cluster/pods.h"
#include "cli/cluster/verbs.h"
#include "common/argument_parser.h"

namespace dsj::cli {
namespace {

struct LogsOptions {
  ClusterFlags flags;
  std::string name;
  std::optional<int64_t> rank, worker, tail, since;
  bool follow = false, previous = false, timestamps = false;
};

class Logs {
 public:
  Logs(const LogsOptions& options, Session& session) : options_(options), session_(session) {}

  int run() {
    const auto job = session_.client.get(jobs_resource(), session_.ns, options_.name);
    if (!job) return report_api("logs", session_, "job " + options_.name, job.error());
    if (const auto wrong = choose_worker(*job)) return report("logs", *wrong);
    int64_t shown = 0;  // incarnation
    while (true) {
      const auto pods = pods_of(session_, options_.name);
      if (!pods) return report_api("logs", session_, "pods of " + options_.name, pods.error());
      const PodRef* pod = choose(*pods, shown);
      if (!pod && shown == 0) return no_pod(*job, *pods);
      if (pod) {
        if (shown > 0)
          std::fprintf(stderr, "--- the pod has ended; its worker goes on as %s\n",
                       pod->name.c_str());
        if (const int failed = print(*pod); failed != 0) return failed;
        shown = pod->incarnation;
      }
      if (!options_.follow || options_.previous || is_over()) return 0;
      if (session_.clock.sleep(kLookAgain, session_.cancel)) return 0;
    }
  }

 private:
  std::optional<Error> choose_worker(const Json& job) {
    const int64_t slots = whole(job, "spec.workers.slotsPerWorker", 1);
    const int64_t workers = whole(job, "spec.workers.replicas", 1);
    worker_ = options_.worker.value_or(options_.rank.value_or(0) / slots);
    if (worker_ >= 0 && worker_ < workers) return std::nullopt;
    return Error{ErrorKind::BadInput,
                 "job " + options_.name + " has " + std::to_string(workers) + " workers with " +
                     std::to_string(slots) + " ranks each",
                 options_.rank ? "--rank " + std::to_string(*options_.rank)
                               : "--worker " + std::to_string(worker_),
                 "ranks are 0 to " + std::to_string(workers * slots - 1)};
  }

  /// The worker's newest pod above `shown`; with --previous the one before the newest.
  const PodRef* choose(const std::vector<PodRef>& pods, int64_t shown) const {
    const PodRef *newest = nullptr, *before = nullptr;
    for (const PodRef& pod : pods) {
      if (pod.worker != worker_) continue;
      before = newest;
      newest = &pod;
    }
    const PodRef* pod = options_.previous ? before : newest;
    return pod && pod->incarnation > shown ? pod : nullptr;
  }

  int no_pod(const Json& job, const std::vector<PodRef>& pods) const {
    const std::string state = word(job, "status.phase");
    const std::string what = options_.previous ? "an earlier pod" : "a pod";
    const bool other =
        std::ranges::any_of(pods, [&](const PodRef& pod) { return pod.worker == worker_; });
    return report(
        "logs",
        Error{ErrorKind::Transient,
              "worker " + std::to_string(worker_) + " has not " + what + " now: the job is " +
                  (state.empty() ? "not taken up by the operator yet" : state),
              "job " + options_.name,
              other ? "without --previous its only pod is shown"
                    : "whole logs are in " + word(job, "spec.training.outputDir") + "/logs"});
  }

  int print(const PodRef& pod) {
    const std::string prefix = options_.rank ? rank_prefix(*options_.rank) : "";
    kube::LogOptions how{.follow = options_.follow && !options_.previous,
                         .timestamps = options_.timestamps,
                         .since_seconds = options_.since};
    const bool keep = options_.tail && options_.rank && !how.follow;  // only the rank's last lines
    if (options_.tail && !keep) how.tail_lines = options_.tail;
    std::deque<std::string> last;
    const auto done = read_log(session_, pod.name, how, [&](const std::string& line) {
      const char* text = line.c_str();
      if (!prefix.empty()) {
        // With --timestamps the prefix follows the time.
        const size_t space = options_.timestamps ? line.find(' ') + 1 : 0;
        text = line_of_rank(line.substr(space), prefix) ? line.c_str() : nullptr;
        if (!text) return true;
        if (space == 0) text += prefix.size();
      }
      if (!keep) {
        std::puts(text);
        std::fflush(stdout);
        return true;
      }
      last.emplace_back(text);
      if (static_cast<int64_t>(last.size()) > *options_.tail) last.pop_front();
      return true;
    });
    for (const std::string& line : last) std::puts(line.c_str());
    if (done) return 0;
    kube::ApiError error = done.error();
    if (error.kind == kube::ApiError::Kind::Invalid)
      error.message += "; `dsj describe " + options_.name + "` shows what it waits for";
    return report_api("logs", session_, "pod " + pod.name, error);
  }

  bool is_over() {
    const auto job = session_.client.get(jobs_resource(), session_.ns, options_.name);
    if (!job) return true;
    const std::string state = word(*job, "status.phase");
    return state == "Complete" || state == "Failed" || state == "Suspended";
  }

  const LogsOptions& options_;
  Session& session_;
  int64_t worker_ = 0;
};

}  // namespace

int run_logs(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "The log of a job: of worker 0's pod, all lines, or of one rank, its lines alone. A pod "
      "shows "
      "what its container runtime kept; a rank's whole log is OUTPUT/logs/rank-N.log.",
      "dsj logs"};
  LogsOptions options;
  parser.option("NAME", options.name, "the job").required();
  add_cluster_flags(parser, options.flags);
  const auto rank =
      parser.option("--rank", options.rank, "lines of this rank alone").non_negative();
  parser.option("--worker", options.worker, "all lines of this worker's pod")
      .non_negative()
      .excludes(rank);
  parser.flag("-f,--follow", options.follow, "until the job ends, over restarts of the pod");
  parser.flag("-p,--previous", options.previous, "of the pod before the newest one");
  parser.option("--tail", options.tail, "the last so many lines").non_negative();
  parser.option("--since", options.since, "of the last so many seconds").positive();
  parser.flag("--timestamps", options.timestamps);
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(options.flags);
  if (!session) return report("logs", session.error());
  return Logs(options, **session).run();
}

}  // namespace dsj::cli
