// dsj exec NAME -- COMMAND: runs a command in a worker's container. Finds the pod and then
// replaces itself by kubectl exec.
#include "cli/cluster/exec.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/cluster/verbs.h"
#include "common/argument_parser.h"
#include "job/contract.h"

namespace dsj::cli {

std::vector<std::string> exec_command(const ExecOptions& options, const std::string& ns,
                                      const std::string& pod, bool terminal) {
  std::vector<std::string> command = {"kubectl", "exec", "-n", ns};
  if (!options.flags.context.empty()) command.push_back("--context=" + options.flags.context);
  if (!options.flags.kubeconfig.empty())
    command.push_back("--kubeconfig=" + options.flags.kubeconfig);
  command.emplace_back(terminal ? "-it" : "-i");
  command.insert(command.end(), {pod, "-c", contract::kContainerName, "--"});
  command.insert(command.end(), options.command.begin(), options.command.end());
  return command;
}

Result<std::string> exec_pod(const ExecOptions& options, const Json& job,
                             const std::vector<PodRef>& pods) {
  const int64_t slots = whole(job, "spec.workers.slotsPerWorker", 1);
  const int64_t workers = whole(job, "spec.workers.replicas", 1);
  const int64_t worker = options.worker.value_or(options.rank.value_or(0) / slots);
  const std::string what = "job " + options.name;
  if (worker >= workers)
    return bad_input("there is no " + (options.rank ? "rank " + std::to_string(*options.rank)
                                                    : "worker " + std::to_string(worker)),
                     what,
                     "it has " + std::to_string(workers) + " workers with " +
                         std::to_string(slots) + " ranks each");
  const PodRef* newest = nullptr;
  for (const PodRef& pod : pods)
    if (pod.worker == worker) newest = &pod;
  if (!newest || word(newest->object, "status.phase") != "Running")
    return fail(ErrorKind::Transient, "worker " + std::to_string(worker) + " does not run now",
                what, "dsj describe " + options.name + " shows its pods");
  return newest->name;
}

int run_exec(Arguments args, const Connect& connect) {
  ArgumentParser parser{"Runs a command in the container of a worker, by kubectl exec.",
                        "dsj exec"};
  ExecOptions options;
  parser.option("NAME", options.name, "the job").required();
  add_cluster_flags(parser, options.flags);
  const auto rank =
      parser.option("--rank", options.rank, "run it in this rank's pod").non_negative();
  parser.option("--worker", options.worker, "run it in this worker's pod (default: 0)")
      .non_negative()
      .excludes(rank);
  parser.option("COMMAND", options.command, "the command, after --").required();
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(options.flags);
  if (!session) return report("exec", session.error());
  const auto job = (*session)->client.get(jobs_resource(), (*session)->ns, options.name);
  if (!job) return report_api("exec", **session, "job " + options.name, job.error());
  const auto pods = pods_of(**session, options.name);
  if (!pods) return report_api("exec", **session, "pods of " + options.name, pods.error());
  const auto pod = exec_pod(options, *job, *pods);
  if (!pod) return report("exec", pod.error());
  auto words = exec_command(options, (*session)->ns, *pod, isatty(0) == 1 && isatty(1) == 1);
  std::vector<char*> command;
  for (std::string& word : words) command.push_back(word.data());
  command.push_back(nullptr);
  execvp(command[0], command.data());
  return report("exec", Error{ErrorKind::Environment,
                              std::string("kubectl cannot be started: ") + std::strerror(errno), "",
                              "put kubectl on PATH"});
}

}  // namespace dsj::cli
