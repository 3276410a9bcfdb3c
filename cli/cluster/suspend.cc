// dsj suspend, dsj resume: sets spec.suspend, and waits for the job with --wait.
#include <cstdio>

#include "cli/cluster/duration.h"
#include "cli/cluster/json_path.h"
#include "cli/cluster/object_result.h"
#include "cli/cluster/verbs.h"
#include "cli/cluster/waiting.h"
#include "common/argument_parser.h"

namespace dsj::cli {
namespace {

struct SuspendOptions {
  ClusterFlags flags;
  std::string name;
  bool wait = false;
  std::optional<kube::Milliseconds> timeout = std::chrono::minutes(15);
};

class Switch {
 public:
  Switch(const char* verb, bool suspend, const SuspendOptions& options, Session& session,
         ObjectResult& result)
      : verb_(verb), suspend_(suspend), options_(options), session_(session), result_(result) {}

  int run() {
    auto job = session_.client.get(jobs_resource(), session_.ns, options_.name);
    if (!job) return failed(job.error());
    const std::string state = word(*job, "status.phase");
    if (state == "Complete" || state == "Failed")
      return report(verb_, Error{ErrorKind::Transient, "the job is over: " + state,
                                 "job " + options_.name, "apply it under another name"});
    const Json* now = find(*job, "spec.suspend");
    if ((now && *now == true) == suspend_) {
      std::printf("%s is %s already\n", options_.name.c_str(),
                  suspend_ ? "to be suspended" : "to run");
    } else {
      const auto patched = session_.client.merge_patch(
          jobs_resource(), session_.ns, options_.name,
          {{"metadata", {{"uid", word(*job, "metadata.uid")}}}, {"spec", {{"suspend", suspend_}}}});
      if (!patched) return failed(patched.error());
      job = patched;
      std::printf("%s: %s\n", options_.name.c_str(),
                  suspend_ ? "all ranks save one step, then its pods go" : "its pods come back");
    }
    std::fflush(stdout);
    if (!options_.wait) result_.answered(*job);
    return options_.wait ? wait(word(*job, "metadata.uid")) : 0;
  }

 private:
  int failed(const kube::ApiError& error) {
    return report_api(verb_, session_, "job " + options_.name, error);
  }

  int wait(const std::string& uid) {
    const Wait wait{.verb = verb_, .name = options_.name, .uid = uid, .timeout = options_.timeout};
    return wait_for_job(session_, wait, [&](const Json& job) -> std::optional<Answer> {
      const std::string state = word(job, "status.phase");
      if (state == "Complete" || state == (suspend_ ? "Suspended" : "Running")) return Answer{};
      if (state == "Failed")
        return Answer{false, "the job has failed", "dsj describe " + options_.name};
      if (const Json* wanted = find(job, "spec.suspend"); (wanted && *wanted == true) != suspend_)
        return Answer{false, "spec.suspend was changed back meanwhile", ""};
      return std::nullopt;
    });
  }

  const char* const verb_;
  const bool suspend_;
  const SuspendOptions& options_;
  Session& session_;
  ObjectResult& result_;
};

int run(const char* verb, bool suspend, const char* help, Arguments args, const Connect& connect) {
  ArgumentParser parser{help, std::string("dsj ") + verb};
  SuspendOptions options;
  parser.option("NAME", options.name, "the job").required();
  add_cluster_flags(parser, options.flags);
  parser.flag("--wait", options.wait, "wait until the job has reached the state");
  parser.option("--timeout", take_timeout(options.timeout),
                "of --wait, for example 90s; 0 looks once (default: 15m)");
  ObjectResult result(parser);
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(options.flags);
  if (!session) return report(verb, session.error());
  return result.of(verb, **session, options.name,
                   [&] { return Switch(verb, suspend, options, **session, result).run(); });
}

}  // namespace

int run_suspend(Arguments args, const Connect& connect) {
  return run("suspend", true,
             "All ranks save one step, then the job's pods are deleted; `dsj resume` continues at "
             "the next step. Sets spec.suspend.",
             args, connect);
}

int run_resume(Arguments args, const Connect& connect) {
  return run("resume", false, "Continues a suspended job at the step after the saved one.", args,
             connect);
}

}  // namespace dsj::cli
