#include "cli/check/trainer_checkpoints.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include "common/text.h"

namespace dsj::cli {

std::string newest_trainer_checkpoint(const std::string& output_dir) {
  static constexpr std::string_view kPrefix = "checkpoint-";
  std::string newest;
  int64_t steps = -1;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(output_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !entry.is_directory(ignored)) continue;
    const auto step = text::parse_int(name.substr(kPrefix.size()));
    if (!step || *step <= steps) continue;
    steps = *step;
    newest = entry.path().string();
  }
  return newest;
}

}  // namespace dsj::cli
