// launcher: Command on this machine: the program of each rank, as the kubelet would start it in
// the worker's container.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "job/spec/job.h"

namespace dsj::cli {

struct RankProgram {
  std::vector<std::string> command;  ///< with references like $(NAME) replaced
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to this process's own
};

/// `run_dir`: the directory of ds_config.json. Errors: BadInput if the program does not exist.
Result<RankProgram> user_program(const jobspec::Job& job, const std::string& run_dir);

}  // namespace dsj::cli
