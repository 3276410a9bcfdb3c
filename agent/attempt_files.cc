#include "agent/attempt_files.h"

#include <cctype>
#include <charconv>

#include "job/contract.h"

namespace dsj::agent {
namespace {

constexpr char kEndedFile[] = "ended";

/// 0: there is no such file yet.
Result<int64_t> read_attempt(Files& files, const std::string& path) {
  DSJ_TRY(const bool there, files.exists(path));
  if (!there) return 0;
  DSJ_TRY(std::string text, files.read_all(path, 64));
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  int64_t attempt = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), attempt);
  if (problem != std::errc{} || end != text.data() + text.size() || attempt < 0) {
    return fail(
        ErrorKind::Environment, "a number is expected, found \"" + text + "\"", path,
        "it holds the number of the newest attempt; correct it or use another output directory");
  }
  return attempt;
}

}  // namespace

AttemptFiles::AttemptFiles(Files& files, const std::string& output_dir) : files_(files) {
  const std::string folder = path_join(output_dir, contract::kCheckpointsDir);
  attempt_path_ = path_join(folder, contract::kAttemptFile);
  ended_path_ = path_join(folder, kEndedFile);
}

Result<int64_t> AttemptFiles::newest() const {
  return read_attempt(files_, attempt_path_);
}

Status AttemptFiles::publish(int64_t attempt) {
  DSJ_TRY_STATUS(files_.make_dirs(path_parent(attempt_path_)));
  return files_.write_atomically(attempt_path_, std::to_string(attempt) + "\n");
}

int64_t AttemptFiles::ended() const {
  return read_attempt(files_, ended_path_).value_or(0);
}

Status AttemptFiles::note_end(int64_t attempt) {
  return files_.write_atomically(ended_path_, std::to_string(attempt) + "\n");
}

}  // namespace dsj::agent
