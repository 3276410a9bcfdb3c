// dsj scale, dsj restart: edits a job so that its gang is recreated. All ranks save one step first.
#include <cstdio>

#include "cli/cluster/json_path.h"
#include "cli/cluster/object_result.h"
#include "cli/cluster/verbs.h"
#include "common/argument_parser.h"
#include "job/spec/worker_template.h"
#include "kube/lease.h"

namespace dsj::cli {
namespace {

/// The job that a verb changes.
struct Target {
  ClusterFlags flags;
  std::string name;
  std::unique_ptr<Session> session;
  Json job;
};

/// Parses arguments, connects, gets the job. Returns an exit code if that fails or the job is over.
std::optional<int> find_target(const char* verb, ArgumentParser& parser, Arguments args,
                               const Connect& connect, Target& target) {
  parser.option("NAME", target.name, "the job").required();
  add_cluster_flags(parser, target.flags);
  if (const auto over = parser.parse(args)) return *over;
  auto session = connect(target.flags);
  if (!session) return report(verb, session.error());
  target.session = std::move(*session);
  const auto job = target.session->client.get(jobs_resource(), target.session->ns, target.name);
  if (!job) return report_api(verb, *target.session, "job " + target.name, job.error());
  target.job = *job;
  const std::string state = word(*job, "status.phase");
  if (state != "Complete" && state != "Failed") return std::nullopt;
  return report(verb, Error{ErrorKind::Transient, "the job is over: " + state, "job " + target.name,
                            "apply it under another name"});
}

/// `told`: printed after success.
int change(const char* verb, Target& target, const Json& spec, const std::string& told,
           ObjectResult& result) {
  return result.of(verb, *target.session, target.name, [&] {
    const auto patched = target.session->client.merge_patch(
        jobs_resource(), target.session->ns, target.name,
        {{"metadata", {{"uid", word(target.job, "metadata.uid")}}}, {"spec", spec}});
    if (!patched) return report_api(verb, *target.session, "job " + target.name, patched.error());
    result.answered(*patched);
    std::printf("%s: %s\n", target.name.c_str(), told.c_str());
    return 0;
  });
}

}  // namespace

int run_scale(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Changes the number of workers. All ranks save one step; the new gang continues from it.",
      "dsj scale"};
  Target target;
  int64_t replicas = 0;
  std::optional<int64_t> current;
  parser.option("--replicas", replicas, "workers")
      .required()
      .positive("dsj suspend NAME releases the pods");
  parser.option("--current-replicas", current, "change nothing if it has another number now")
      .positive();
  ObjectResult result(parser);
  if (const auto over = find_target("scale", parser, args, connect, target)) return *over;
  const int64_t now = whole(target.job, "spec.workers.replicas", 1);
  if (current && *current != now)
    return report("scale", Error{ErrorKind::Transient,
                                 "it has " + std::to_string(now) + " workers, not " +
                                     std::to_string(*current),
                                 "job " + target.name, "nothing was changed"});
  if (now == replicas)
    return result.of("scale", *target.session, target.name, [&] {
      result.answered(target.job);
      std::printf("%s has %ld workers already\n", target.name.c_str(), now);
      return 0;
    });
  const bool waits = replicas > now && find(target.job, "spec.elastic") != nullptr;
  return change("scale", target, {{"workers", {{"replicas", replicas}}}},
                std::to_string(now) + " workers become " + std::to_string(replicas) +
                    (waits ? " when there are nodes for them" : " after one saved step"),
                result);
}

int run_restart(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Recreates all pods of a job, as `kubectl rollout restart` does. All ranks save one step; "
      "the new gang continues from it. Nothing is charged to backoffLimit.",
      "dsj restart"};
  Target target;
  ObjectResult result(parser);
  if (const auto over = find_target("restart", parser, args, connect, target)) return *over;
  if (const Json* suspend = find(target.job, "spec.suspend"); suspend && *suspend == true)
    return report("restart",
                  Error{ErrorKind::Transient, "the job is suspended and has no pods",
                        "job " + target.name, "dsj resume " + target.name + " makes them"});
  const Json annotations = {
      {jobspec::kRestartedAt, kube::micro_time(target.session->clock.wall())}};
  return change("restart", target,
                {{"workers", {{"template", {{"metadata", {{"annotations", annotations}}}}}}}},
                "all ranks save one step, then its pods are recreated", result);
}

}  // namespace dsj::cli
