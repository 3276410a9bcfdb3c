#include "job/spec/ranks_here.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace dsj::jobspec {

Processors processors(const std::string& root) {
  Processors found{.cpus = std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN))};
  std::error_code problem;
  const std::filesystem::path driver = std::filesystem::path(root) / "proc/driver/nvidia/gpus";
  for (const auto& gpu : std::filesystem::directory_iterator(driver, problem))
    found.gpus += gpu.is_directory(problem);
  return found;
}

std::optional<int64_t> ranks_of(const std::string& word, const Processors& has) {
  if (word == "cpu") return has.cpus;
  if (word == "auto") return has.gpus > 0 ? has.gpus : has.cpus;
  if (word == "gpu" && has.gpus > 0) return has.gpus;
  return std::nullopt;
}

}  // namespace dsj::jobspec
