// dsj wait NAME [--for STATE]: waits until a job has ended, runs, or has done or saved a step.
#include <cstdio>

#include "cli/cluster/duration.h"
#include "cli/cluster/object_result.h"
#include "cli/cluster/verbs.h"
#include "cli/cluster/waiting.h"
#include "common/argument_parser.h"
#include "common/text.h"

namespace dsj::cli {
namespace {

/// The condition of --for: a state, or a step that is done or saved.
struct Goal {
  std::string state;  ///< as in status.phase; empty for a step
  std::string path;   ///< path of the step in the job object
  int64_t step = 0;
};

constexpr char kExpected[] = "complete, running, suspended, step=N or checkpoint=N";

std::optional<Goal> goal_of(const std::string& word) {
  const std::string name = text::normalized(word.substr(0, word.find('=')));
  if (word.find('=') == std::string::npos) {
    if (name == "complete") return Goal{.state = "Complete"};
    if (name == "running") return Goal{.state = "Running"};
    if (name == "suspended") return Goal{.state = "Suspended"};
    return std::nullopt;
  }
  const auto step = text::parse_int(word.substr(word.find('=') + 1));
  if (!step || *step < 1) return std::nullopt;
  if (name == "step") return Goal{.path = "status.training.step", .step = *step};
  if (name == "checkpoint") return Goal{.path = "status.checkpoint.lastSaved.step", .step = *step};
  return std::nullopt;
}

std::optional<Answer> judge(const Goal& goal, const std::string& name, const Json& job) {
  const std::string state = word(job, "status.phase");
  if (goal.state.empty() ? whole(job, goal.path) >= goal.step : state == goal.state)
    return Answer{};
  if (const auto over = given_up(name, job)) return over;
  if (state == "Complete")
    return Answer{false, "the job is Complete, so the condition can no longer hold", ""};
  return std::nullopt;
}

}  // namespace

int run_wait(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Waits for a job. Exit code: 0 if the condition holds, 1 if it can no longer hold or the "
      "time is over.",
      "dsj wait"};
  ClusterFlags flags;
  std::string name;
  Goal goal{.state = "Complete"};
  std::optional<kube::Milliseconds> timeout;
  parser.option("NAME", name, "the job").required();
  add_cluster_flags(parser, flags);
  parser.option(
      "--for",
      [&](const std::string& word) -> std::optional<std::string> {
        const auto asked = goal_of(word);
        if (!asked) return "\"" + word + "\": expected " + kExpected;
        goal = *asked;
        return std::nullopt;
      },
      std::string(kExpected) + " (default: complete)");
  parser.option("--timeout", take_timeout(timeout),
                "for example 90s or 2h; 0 looks once (default: no limit)");
  ObjectResult result(parser);
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(flags);
  if (!session) return report("wait", session.error());
  const auto job = (*session)->client.get(jobs_resource(), (*session)->ns, name);
  if (!job) return report_api("wait", **session, "job " + name, job.error());
  const Wait wait{.verb = "wait",
                  .name = name,
                  .uid = word(*job, "metadata.uid"),
                  .timeout = timeout,
                  .progress = true};
  return result.of("wait", **session, name, [&] {
    return wait_for_job(**session, wait, [&](const Json& now) { return judge(goal, name, now); });
  });
}

}  // namespace dsj::cli
