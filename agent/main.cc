// dsj-agent: one per worker, started by `dsj run` (or as a pod's first process).
#include <CLI/CLI.hpp>

#include "agent/loop.h"
#include "common/contract.h"

int main(int argc, char** argv) {
  dsj::agent::LoopOptions options;
  CLI::App app("The agent of one worker of a DeepSpeedJob; started by `dsj run`.", "dsj-agent");
  app.add_option("--config", options.config_path, "the run's agent.json")->required();
  app.add_option("--worker", options.worker, "index of this worker")->required();
  app.add_option("--incarnation", options.incarnation, "which life of this worker");
  app.add_option("--report-fd", options.report_fd, "descriptor that takes worker 0's reports");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : dsj::contract::kExitBadInput;
  }
  return dsj::agent::run_agent(options);
}
