#include "cli/cluster/waiting.h"

#include <cstdio>

#include "cli/cluster/patience.h"
#include "common/text.h"
#include "kube/watch.h"

namespace dsj::cli {
namespace {

constexpr std::chrono::seconds kStepEvery{30};

std::string standing_word(const std::string& state) {
  return state.empty() ? "not taken up by the operator" : state;
}

/// "Running, step 12 of 50".
std::string standing(const Json& job) {
  const std::string state = word(job, "status.phase"), step = word(job, "status.training.step");
  const std::string total = word(job, "status.training.totalSteps");
  return standing_word(state) +
         (step.empty() ? "" : ", step " + step + (total.empty() ? "" : " of " + total));
}

/// Prints the job's state when it has changed, or when the last line is old.
class Telling {
 public:
  explicit Telling(kube::Clock& clock) : clock_(clock) {}

  void see(const std::string& name, const Json& job) {
    const std::string state = word(job, "status.phase"), line = standing(job);
    const auto now = clock_.monotonic();
    if (line == last_ || (state == state_ && now - at_ < kStepEvery)) return;
    std::printf("%s: %s\n", name.c_str(), line.c_str());
    std::fflush(stdout);
    state_ = state;
    last_ = line;
    at_ = now;
  }

 private:
  kube::Clock& clock_;
  std::string state_ = "none yet", last_;
  decltype(clock_.monotonic()) at_{};
};

constexpr std::chrono::seconds kReplay{5};

/// What became of a job after `version`, its deletion included: with ttlSecondsAfterFinished: 0 it is gone before one looks
/// again. A server repeats the changes of the last minutes. Empty: it does not know them any more.
std::vector<Json> missed(Session& session, const std::string& name, const std::string& version) {
  std::vector<Json> all;
  auto lines =
      session.client.watch(jobs_resource(), session.ns,
                           {.field_selector = "metadata.name=" + name, .resource_version = version},
                           kReplay, session.cancel);
  while (lines) {
    const auto line = (*lines)->next(kReplay);
    const auto event = line && *line ? kube::parse_watch_event(**line) : Result<kube::WatchEvent>{};
    if (!line || !*line || !event || event->kind == kube::WatchEvent::Kind::Error) break;
    if (event->kind != kube::WatchEvent::Kind::Bookmark) all.push_back(event->object);
    if (event->kind == kube::WatchEvent::Kind::Deleted) break;
  }
  return all;
}

}  // namespace

bool status_is_current(const Json& job) {
  return whole(job, "status.observedGeneration") >= whole(job, "metadata.generation");
}

std::optional<Answer> given_up(const std::string& name, const Json& job) {
  const std::string state = word(job, "status.phase");
  if (state != "Failed" && state != "Refused") return std::nullopt;
  return Answer{false, "the job is " + state, "dsj describe " + name + " says why"};
}

int wait_for_job(Session& session, const Wait& wait, const Judge& judge) {
  const std::string what = "job " + wait.name;
  const auto over = [&](const std::string& message, const std::string& hint) {
    return report(wait.verb, Error{ErrorKind::Transient, message, what, hint});
  };
  const auto start = session.clock.monotonic();
  Telling telling(session.clock);
  Patience patience(wait.verb, session.clock);
  std::string state, version;
  /// The exit code, once it is decided.
  const auto see = [&](const Json& job) -> std::optional<int> {
    state = word(job, "status.phase");
    version = word(job, "metadata.resourceVersion");
    if (wait.progress) telling.see(wait.name, job);
    const auto answer = status_is_current(job) ? judge(job) : std::nullopt;
    if (!answer) return std::nullopt;
    if (!answer->reached) return over(answer->message, answer->hint);
    const std::string saved = word(job, "status.checkpoint.lastSaved.step");
    std::printf("%s is %s%s\n", wait.name.c_str(), state.c_str(),
                saved.empty() ? "" : (", saved at step " + saved).c_str());
    return 0;
  };
  while (true) {
    const auto job = session.client.get(jobs_resource(), session.ns, wait.name);
    const bool is_it = job && word(*job, "metadata.uid") == wait.uid;
    const bool gone = job ? !is_it : job.error().kind == kube::ApiError::Kind::NotFound;
    if (gone && !version.empty()) {
      for (const Json& change : missed(session, wait.name, version)) {
        if (word(change, "metadata.uid") != wait.uid) break;
        if (const auto code = see(change)) return *code;
      }
      if (!job) return over("it was deleted when it was " + standing_word(state), "");
    }
    if (is_it) {
      patience.renew();
      if (const auto code = see(*job)) return *code;
    } else if (job) {
      return over("another job has this name now", "");
    } else if (!patience.lasts(job.error())) {
      return report_api(wait.verb, session, what, job.error());
    }
    if (wait.timeout && session.clock.monotonic() - start >= *wait.timeout) {
      return over("still " + standing_word(state) + " after " +
                      text::number(static_cast<double>(wait.timeout->count()) / 1e3) + " s",
                  "dsj debug " + wait.name + " says what it waits for");
    }
    if (session.clock.sleep(kLookAgain, session.cancel)) return 130;
  }
}

}  // namespace dsj::cli
