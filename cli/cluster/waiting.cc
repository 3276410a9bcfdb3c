#include "cli/cluster/waiting.h"

#include <cstdio>

#include "cli/cluster/patience.h"
#include "common/text.h"

namespace dsj::cli {
namespace {

constexpr std::chrono::seconds kStepEvery{30};

/// "Running, step 12 of 50".
std::string standing(const Json& job) {
  const std::string state = word(job, "status.phase"), step = word(job, "status.training.step");
  const std::string total = word(job, "status.training.totalSteps");
  return (state.empty() ? "not taken up by the operator" : state) +
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
  std::string state;
  while (true) {
    const auto job = session.client.get(jobs_resource(), session.ns, wait.name);
    if (!job) {
      if (!patience.lasts(job.error())) return report_api(wait.verb, session, what, job.error());
    } else {
      patience.renew();
      state = word(*job, "status.phase");
      if (word(*job, "metadata.uid") != wait.uid)
        return over("it is another job by that name now", "");
      if (wait.progress) telling.see(wait.name, *job);
      if (const auto answer = status_is_current(*job) ? judge(*job) : std::nullopt) {
        if (!answer->reached) return over(answer->message, answer->hint);
        const std::string saved = word(*job, "status.checkpoint.lastSaved.step");
        std::printf("%s is %s%s\n", wait.name.c_str(), state.c_str(),
                    saved.empty() ? "" : (", saved at step " + saved).c_str());
        return 0;
      }
    }
    if (wait.timeout && session.clock.monotonic() - start >= *wait.timeout) {
      return over("still " + (state.empty() ? "not taken up by the operator" : state) + " after " +
                      text::number(static_cast<double>(wait.timeout->count()) / 1e3) + " s",
                  "dsj debug " + wait.name + " says what it waits for");
    }
    if (session.clock.sleep(kLookAgain, session.cancel)) return 130;
  }
}

}  // namespace dsj::cli
