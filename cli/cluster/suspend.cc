// dsj suspend, dsj resume: sets spec.suspend and waits until the job has followed.
#include <cstdio>

#include "cli/cluster/json_path.h"
#include "cli/cluster/verbs.h"
#include "common/argument_parser.h"

namespace dsj::cli {
namespace {

constexpr kube::Milliseconds kLookAgain{1000};

struct SuspendOptions {
  ClusterFlags flags;
  std::string name;
  bool wait = false;
  int64_t timeout = 900;
};

class Switch {
 public:
  Switch(const char* verb, bool suspend, const SuspendOptions& options, Session& session)
      : verb_(verb), suspend_(suspend), options_(options), session_(session) {}

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
    return options_.wait ? wait(word(*job, "metadata.uid")) : 0;
  }

 private:
  int failed(const kube::ApiError& error) {
    return report_api(verb_, session_, "job " + options_.name, error);
  }

  int over(const std::string& message, const std::string& hint) {
    return report(verb_, Error{ErrorKind::Transient, message, "job " + options_.name, hint});
  }

  int wait(const std::string& uid) {
    const auto end = session_.clock.monotonic() + std::chrono::seconds(options_.timeout);
    while (true) {
      const auto job = session_.client.get(jobs_resource(), session_.ns, options_.name);
      if (!job) return failed(job.error());
      if (word(*job, "metadata.uid") != uid) return over("it is another job by that name now", "");
      const std::string state = word(*job, "status.phase");
      const bool seen =
          whole(*job, "status.observedGeneration") >= whole(*job, "metadata.generation");
      if (seen && (state == "Complete" || (!suspend_ && state == "Running"))) return done(*job);
      if (seen && suspend_ && state == "Suspended") return done(*job);
      if (state == "Failed") return over("the job has failed", "dsj describe " + options_.name);
      if (const Json* wanted = find(*job, "spec.suspend"); (wanted && *wanted == true) != suspend_)
        return over("somebody has turned spec.suspend back", "");
      if (session_.clock.monotonic() >= end)
        return over("still " + (state.empty() ? "not taken up by the operator" : state) +
                        " after " + std::to_string(options_.timeout) + " s",
                    "dsj debug " + options_.name + " says what it waits for");
      if (session_.clock.sleep(kLookAgain, session_.cancel)) return 130;
    }
  }

  int done(const Json& job) {
    const std::string saved = word(job, "status.checkpoint.lastSaved.step");
    std::printf("%s is %s%s\n", options_.name.c_str(), word(job, "status.phase").c_str(),
                saved.empty() ? "" : (", saved at step " + saved).c_str());
    return 0;
  }

  const char* const verb_;
  const bool suspend_;
  const SuspendOptions& options_;
  Session& session_;
};

int run(const char* verb, bool suspend, const char* help, Arguments args, const Connect& connect) {
  ArgumentParser parser{help, std::string("dsj ") + verb};
  SuspendOptions options;
  parser.option("NAME", options.name, "the job").required();
  add_cluster_flags(parser, options.flags);
  parser.flag("--wait", options.wait, "until it is so");
  parser.option("--timeout", options.timeout, "of --wait, in seconds (900)").positive();
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(options.flags);
  if (!session) return report(verb, session.error());
  return Switch(verb, suspend, options, **session).run();
}

}  // namespace

int run_suspend(Arguments args, const Connect& connect) {
  return run("suspend", true,
             "All ranks save one step, then the job's pods go; `dsj resume` goes on at the next "
             "step. Sets spec.suspend.",
             args, connect);
}

int run_resume(Arguments args, const Connect& connect) {
  return run("resume", false, "A suspended job goes on at the step after the saved one.", args,
             connect);
}

}  // namespace dsj::cli
