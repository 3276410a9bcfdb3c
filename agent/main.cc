// dsj-agent: one per worker, started by `dsj run`, or as a pod's first process (--pod).
#include <CLI/CLI.hpp>
#include <cstdio>

#include "agent/loop.h"
#include "agent/pod_loop.h"
#include "common/contract.h"

int main(int argc, char** argv) {
  dsj::agent::LoopOptions options;
  dsj::agent::PodOptions pod;
  bool in_pod = false;
  CLI::App app(
      "The agent of one worker of a DeepSpeedJob; started by `dsj run`, or by the operator as the "
      "first process of a pod.",
      "dsj-agent");
  auto* pod_flag =
      app.add_flag("--pod", in_pod, "configured by the environment and /etc/dsj/job.json of a pod");
  app.add_option("--root", pod.root, "put before the pod's mount paths (for tests)")
      ->needs(pod_flag);
  app.add_option("--config", options.config_path, "the run's agent.json")->excludes(pod_flag);
  app.add_option("--worker", options.worker, "index of this worker")->excludes(pod_flag);
  app.add_option("--incarnation", options.incarnation, "which life of this worker");
  app.add_option("--report-fd", options.report_fd, "descriptor that takes worker 0's reports");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : dsj::contract::kExitBadInput;
  }
  if (in_pod) return dsj::agent::run_pod(pod);
  if (options.config_path.empty()) {
    std::fputs("dsj-agent: --config or --pod is required\n", stderr);
    return dsj::contract::kExitBadInput;
  }
  return dsj::agent::run_agent(options);
}
