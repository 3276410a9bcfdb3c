// dsj scale, dsj restart: an edit of a job that makes its gang anew. All ranks save one step first.
#include <cstdio>

#include "cli/cluster/json_path.h"
#include "cli/cluster/verbs.h"
#include "common/argument_parser.h"
#include "kube/lease.h"

namespace dsj::cli {
namespace {

/// What `kubectl rollout restart` sets, under a name of ours: another template is another gang.
constexpr char kRestartedAt[] = "training.dsj.dev/restartedAt";

/// Changes the spec of a job that is not over. `told`: what is printed when it is done.
int change(const char* verb, Session& session, const std::string& name, const Json& job,
           const Json& spec, const std::string& told) {
  const auto patched = session.client.merge_patch(
      jobs_resource(), session.ns, name,
      {{"metadata", {{"uid", word(job, "metadata.uid")}}}, {"spec", spec}});
  if (!patched) return report_api(verb, session, "job " + name, patched.error());
  std::printf("%s: %s\n", name.c_str(), told.c_str());
  return 0;
}

/// Error: the job is over.
std::optional<Error> is_over(const std::string& name, const Json& job) {
  const std::string state = word(job, "status.phase");
  if (state != "Complete" && state != "Failed") return std::nullopt;
  return Error{ErrorKind::Transient, "the job is over: " + state, "job " + name,
               "apply it under another name"};
}

}  // namespace

int run_scale(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Changes the number of workers. All ranks save one step; the new gang goes on from it.",
      "dsj scale"};
  ClusterFlags flags;
  std::string name;
  int64_t replicas = 0;
  std::optional<int64_t> current;
  parser.option("NAME", name, "the job").required();
  add_cluster_flags(parser, flags);
  parser.option("--replicas", replicas, "workers").required().positive();
  parser.option("--current-replicas", current, "change nothing if it has another number now")
      .positive();
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(flags);
  if (!session) return report("scale", session.error());
  const auto job = (*session)->client.get(jobs_resource(), (*session)->ns, name);
  if (!job) return report_api("scale", **session, "job " + name, job.error());
  if (const auto over = is_over(name, *job)) return report("scale", *over);
  const int64_t now = whole(*job, "spec.workers.replicas", 1);
  if (current && *current != now)
    return report("scale", Error{ErrorKind::Transient,
                                 "it has " + std::to_string(now) + " workers, not " +
                                     std::to_string(*current),
                                 "job " + name, "nothing was changed"});
  if (now == replicas) {
    std::printf("%s has %ld workers already\n", name.c_str(), now);
    return 0;
  }
  return change("scale", **session, name, *job, {{"workers", {{"replicas", replicas}}}},
                std::to_string(now) + " workers become " + std::to_string(replicas) +
                    " after one saved step");
}

int run_restart(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Makes all pods of a job anew, as `kubectl rollout restart` does. All ranks save one step; "
      "the new gang goes on from it. Nothing is charged to backoffLimit.",
      "dsj restart"};
  ClusterFlags flags;
  std::string name;
  parser.option("NAME", name, "the job").required();
  add_cluster_flags(parser, flags);
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(flags);
  if (!session) return report("restart", session.error());
  const auto job = (*session)->client.get(jobs_resource(), (*session)->ns, name);
  if (!job) return report_api("restart", **session, "job " + name, job.error());
  if (const auto over = is_over(name, *job)) return report("restart", *over);
  if (const Json* suspend = find(*job, "spec.suspend"); suspend && *suspend == true)
    return report("restart", Error{ErrorKind::Transient, "the job is suspended and has no pods",
                                   "job " + name, "dsj resume " + name + " makes them"});
  const Json annotations = {{kRestartedAt, kube::micro_time((*session)->clock.wall())}};
  return change("restart", **session, name, *job,
                {{"workers", {{"template", {{"metadata", {{"annotations", annotations}}}}}}}},
                "all ranks save one step, then its pods are made anew");
}

}  // namespace dsj::cli
