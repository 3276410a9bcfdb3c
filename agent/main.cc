// dsj-agent: one per worker. `dsj run` starts it, or it is a pod's first process (--pod). With
// --install it copies itself to where a container with another image can start it.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "agent/install.h"
#include "agent/loop.h"
#include "agent/pod_loop.h"
#include "agent/signals_ready.h"
#include "common/argument_parser.h"
#include "common/standard_streams.h"
#include "common/version/version.h"
#include "job/contract.h"

namespace {

int install(const std::string& directory) {
  const auto files = dsj::agent::install(directory);
  if (files) {
    std::printf("dsj-agent: %d files in %s\n", *files, directory.c_str());
    return dsj::contract::kExitDone;
  }
  std::fprintf(stderr, "dsj-agent: %s\n", files.error().to_string().c_str());
  return dsj::contract::kExitEnvironment;
}

}  // namespace

int main(int argc, char** argv) {
  dsj::open_standard_streams();
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (const auto over = dsj::answer_version("dsj-agent", words))
    return *over == 0 ? 0 : dsj::contract::kExitBadInput;
  dsj::agent::LoopOptions options;
  dsj::agent::PodOptions pod;
  std::string install_into;
  bool in_pod = false, before_stop = false;
  // Arguments after "--" are the user's; this parser ignores them.
  int own = 1;
  while (own < argc && std::strcmp(argv[own], "--") != 0) ++own;
  for (int i = own + 1; i < argc; ++i) pod.command.push_back(argv[i]);
  dsj::ArgumentParser parser(
      "The agent of one worker of a DeepSpeedJob; started by `dsj run`, or by the operator as the "
      "first process of a pod.",
      "dsj-agent");
  const auto pod_flag = parser.flag("--pod", in_pod,
                                    "read the environment and /etc/dsj/job.json of a pod; run the "
                                    "user's program after -- as the ranks");
  parser.option("--root", pod.root, "prefix of the pod's mount paths (for tests)").needs(pod_flag);
  parser.option("--config", options.config_path, "the run's agent.json").excludes(pod_flag);
  parser.option("--worker", options.worker, "index of this worker").excludes(pod_flag);
  parser
      .option("--install", install_into,
              "copy this program, its loader and its libraries into a directory, and end")
      .excludes(pod_flag);
  parser
      .flag("--await-signals", before_stop,
            "a container's preStop hook: wait until the agent, process 1, handles signals")
      .excludes(pod_flag);
  parser.option("--incarnation", options.incarnation, "number of this worker's incarnation");
  parser.option("--report-fd", options.report_fd, "descriptor that takes worker 0's reports");
  if (const auto over = parser.parse(own, argv)) {
    return *over == 0 ? 0 : dsj::contract::kExitBadInput;
  }
  if (!install_into.empty()) return install(install_into);
  if (before_stop) {
    // If this fails, the grace period ends the container.
    (void)dsj::agent::await_signals_ready("/proc/1/status", std::chrono::seconds(10));
    return dsj::contract::kExitDone;
  }
  if (in_pod) return dsj::agent::run_pod(pod);
  if (options.config_path.empty()) {
    std::fputs("dsj-agent: --config or --pod is required\n", stderr);
    return dsj::contract::kExitBadInput;
  }
  return dsj::agent::run_agent(options);
}
