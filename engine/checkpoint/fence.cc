#include "engine/checkpoint/fence.h"

#include <charconv>
#include <cstring>

#include "job/contract.h"

namespace dsj::checkpoint {

Result<int64_t> owner_of(Files& files, const std::string& checkpoints_dir) {
  const std::string path = path_join(checkpoints_dir, contract::kAttemptFile);
  DSJ_TRY(const bool there, files.exists(path));
  if (!there) return 0;
  DSJ_TRY(std::string text, files.read_all(path, 64));
  while (!text.empty() && std::strchr(" \t\r\n", text.back())) text.pop_back();
  int64_t owner = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), owner);
  if (problem != std::errc{} || end != text.data() + text.size()) {
    return fail(ErrorKind::Environment, "a number is expected, found \"" + text + "\"", path);
  }
  return owner;
}

}  // namespace dsj::checkpoint
