#include "cli/check/run_program.h"

#include <cstdlib>

#include "agent/ranks/spawn.h"
#include "job/contract.h"
#include "job/spec/user_program.h"

namespace dsj::cli {

Result<RankProgram> user_program(const jobspec::Job& job, const std::string& run_dir) {
  const std::string ds_config = run_dir + "/" + contract::kDsConfigFile;
  const jobspec::Lookup ours = [&](const std::string& name) {
    return job.has_ds_config() && name == contract::kEnvDsConfig ? &ds_config : nullptr;
  };
  RankProgram program{.environment = jobspec::user_environment(job.worker_template, ours)};
  const jobspec::Lookup known = [&](const std::string& name) {
    const std::string* value = ours(name);
    for (const auto& [variable, text] : program.environment)
      if (variable == name) value = &text;
    return value;
  };
  for (const std::string& word : jobspec::user_command(job.worker_template))
    program.command.push_back(jobspec::expand_references(word, known));
  const std::string* path = known("PATH");
  const char* own_path = std::getenv("PATH");
  const std::string folders = path ? *path : own_path ? own_path : "";
  if (program.command.empty() || !agent::find_program(program.command[0], folders)) {
    return bad_input("there is no such program here",
                     program.command.empty() ? "spec.workers.template" : program.command[0],
                     "spec.workers.template names it; install it, or give its path");
  }
  return program;
}

}  // namespace dsj::cli
