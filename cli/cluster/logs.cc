// dsj logs NAME [--rank N]: the log of a pod, or with --rank only the rank's lines.
#include <cstdio>
#include <deque>

#include "cli/cluster/duration.h"
#include "cli/cluster/patience.h"
#include "cli/cluster/pods.h"
#include "cli/cluster/verbs.h"
#include "common/argument_parser.h"

namespace dsj::cli {
namespace {

/// A log that is resumed is read from this long before the last line, so that no line is missed.
constexpr int64_t kOverlapSeconds = 5;

struct LogsOptions {
  ClusterFlags flags;
  std::string name;
  std::optional<int64_t> rank, worker, tail;
  std::optional<kube::Milliseconds> since;
  bool follow = false, previous = false, timestamps = false;
};

class Logs {
 public:
  Logs(const LogsOptions& options, Session& session)
      : options_(options),
        session_(session),
        follow_(options.follow && !options.previous),
        prefix_(options.rank ? rank_prefix(*options.rank) : "") {}

  int run() {
    const auto job = session_.client.get(jobs_resource(), session_.ns, options_.name);
    if (!job) return report_api("logs", session_, "job " + options_.name, job.error());
    if (const auto wrong = choose_worker(*job)) return report("logs", *wrong);
    while (true) {
      std::string what = "pods of " + options_.name;
      std::optional<kube::ApiError> error;
      if (const auto pods = pods_of(session_, options_.name)) {
        const PodRef* pod = choose(*pods);
        if (!pod && shown_ == 0) return no_pod(*job, *pods);
        if (pod) {
          what = "pod " + pod->name;
          error = print(*pod);
        }
      } else {
        error = pods.error();
      }
      if (!error)
        patience_.renew();
      else if (!follow_ || !patience_.lasts(*error))
        return report_api("logs", session_, what, *error);
      if (!follow_) return 0;
      if (const auto code = over()) return *code;
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

  /// The worker's newest pod, or with --previous the one before it, if it has a log to show. A
  /// pod that was shown and still runs is chosen again: its connection was cut by a time limit
  /// or a server restart.
  const PodRef* choose(const std::vector<PodRef>& pods) const {
    const PodRef *newest = nullptr, *before = nullptr;
    for (const PodRef& pod : pods) {
      if (pod.worker != worker_) continue;
      before = newest;
      newest = &pod;
    }
    const PodRef* pod = options_.previous ? before : newest;
    if (!pod || shown_ == 0) return pod;
    const bool more = pod->incarnation == shown_ ? is_running(*pod) : has_log(*pod);
    return more && pod->incarnation >= shown_ ? pod : nullptr;
  }

  int no_pod(const Json& job, const std::vector<PodRef>& pods) const {
    const std::string state = word(job, "status.phase");
    const std::string what = options_.previous ? "earlier pod" : "pod";
    const bool other =
        std::ranges::any_of(pods, [&](const PodRef& pod) { return pod.worker == worker_; });
    return report(
        "logs",
        Error{ErrorKind::Transient,
              "worker " + std::to_string(worker_) + " has no " + what + " now: the job is " +
                  (state.empty() ? "not taken up by the operator yet" : state),
              "job " + options_.name,
              other ? "without --previous its only pod is shown"
                    : "whole logs are in " + word(job, "spec.training.outputDir") + "/logs"});
  }

  /// Timestamps distinguish new lines from those that were already shown.
  kube::LogOptions how_to_read(bool again) const {
    kube::LogOptions how{
        .follow = follow_, .timestamps = follow_ || options_.timestamps, .since_seconds = {}};
    if (options_.since)
      how.since_seconds = std::chrono::ceil<std::chrono::seconds>(*options_.since).count();
    if (!keeps_last_lines()) how.tail_lines = options_.tail;
    if (again && !last_time_.empty()) {
      how.tail_lines.reset();
      how.since_seconds = now_seconds(session_.clock) - heard_at_ + kOverlapSeconds;
    }
    return how;
  }

  /// --tail for one rank is applied here, because the server counts the lines of all ranks.
  bool keeps_last_lines() const { return options_.tail && options_.rank && !follow_; }

  /// The text to show for a line; nullopt if it is another rank's or not newer than `known`.
  std::optional<std::string> shown_of(const std::string& line, bool timed,
                                      const std::string& known) {
    const size_t begin = timed ? line.find(' ') + 1 : 0;
    if (follow_) {
      const std::string time = line.substr(0, begin);
      if (!known.empty() && time <= known) return std::nullopt;
      last_time_ = std::max(last_time_, time);  // stdout and stderr may be slightly out of order
      heard_at_ = now_seconds(session_.clock);
    }
    const std::string text = line.substr(begin);
    const char* own = prefix_.empty() ? text.c_str() : line_of_rank(text, prefix_);
    if (!own) return std::nullopt;
    return options_.timestamps ? line : own;
  }

  void enter(const PodRef& pod) {
    if (pod.incarnation == shown_) return;
    if (shown_ > 0)
      std::fprintf(stderr, "--- the pod has ended; its worker continues as %s\n", pod.name.c_str());
    shown_ = pod.incarnation;
    last_time_.clear();
  }

  std::optional<kube::ApiError> print(const PodRef& pod) {
    const bool again = pod.incarnation == shown_;
    const kube::LogOptions how = how_to_read(again);
    const std::string known = again ? last_time_ : "";
    std::deque<std::string> last;
    const auto done = read_log(session_, pod.name, how, [&](const std::string& line) {
      enter(pod);
      auto text = shown_of(line, how.timestamps, known);
      if (!text) return true;
      if (!keeps_last_lines()) {
        std::puts(text->c_str());
        std::fflush(stdout);
        return true;
      }
      last.push_back(std::move(*text));
      if (static_cast<int64_t>(last.size()) > *options_.tail) last.pop_front();
      return true;
    });
    for (const std::string& line : last) std::puts(line.c_str());
    if (done) {
      enter(pod);
      return std::nullopt;
    }
    kube::ApiError error = done.error();
    if (error.kind == kube::ApiError::Kind::Invalid)
      error.message += "; `dsj describe " + options_.name + "` shows what it waits for";
    return error;
  }

  /// The exit code, if the job will have no further pods.
  std::optional<int> over() {
    const auto job = session_.client.get(jobs_resource(), session_.ns, options_.name);
    if (!job) {
      if (job.error().kind == kube::ApiError::Kind::NotFound) return 0;
      if (patience_.lasts(job.error())) return std::nullopt;
      return report_api("logs", session_, "job " + options_.name, job.error());
    }
    const std::string state = word(*job, "status.phase");
    if (state == "Complete" || state == "Failed" || state == "Suspended") return 0;
    return std::nullopt;
  }

  const LogsOptions& options_;
  Session& session_;
  const bool follow_;
  const std::string prefix_;
  Patience patience_{"logs", session_.clock};
  int64_t worker_ = 0;
  int64_t shown_ = 0;      ///< incarnation of the pod that was shown last; 0 if none
  std::string last_time_;  ///< time of the last line of that pod
  int64_t heard_at_ = 0;   ///< when it arrived, by this machine's clock
};

}  // namespace

int run_logs(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Prints the log of worker 0's pod, or only the lines of one rank. A pod's log has what its "
      "container runtime kept; OUTPUT/logs/rank-N.log has the whole log of a rank.",
      "dsj logs"};
  LogsOptions options;
  parser.option("NAME", options.name, "the job").required();
  add_cluster_flags(parser, options.flags);
  const auto rank =
      parser.option("--rank", options.rank, "only the lines of this rank").non_negative();
  parser.option("--worker", options.worker, "all lines of this worker's pod")
      .non_negative()
      .excludes(rank);
  parser.flag("-f,--follow", options.follow, "follow until the job ends, over restarts of the pod");
  parser.flag("-p,--previous", options.previous, "the log of the previous pod");
  parser.option("--tail", options.tail, "only the last N lines").non_negative();
  parser.option("--since", take_duration(options.since, true),
                "only lines of the last 90s, 5m or 2h");
  parser.flag("--timestamps", options.timestamps, "print the time of each line");
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(options.flags);
  if (!session) return report("logs", session.error());
  return Logs(options, **session).run();
}

}  // namespace dsj::cli
