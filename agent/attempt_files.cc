#include "agent/attempt_files.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <span>

#include "job/contract.h"

namespace dsj::agent {
namespace {

constexpr char kEndedFile[] = "ended";
constexpr char kManifestFile[] = "manifest.json";
constexpr int64_t kManifestHead = 4096;
constexpr int64_t kAttemptMax = int64_t{1} << 53;

/// 0 if the file does not exist yet.
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

/// The attempt in a checkpoint's manifest. Members are sorted, so it comes first. 0 if there is no
/// manifest of this form.
int64_t attempt_in_manifest(Files& files, const std::string& path) {
  const auto file = files.open_read(path);
  if (!file) return 0;
  std::string head(static_cast<size_t>(std::min((*file)->size(), kManifestHead)), '\0');
  if (!(*file)->read(0, std::as_writable_bytes(std::span(head)))) return 0;
  constexpr std::string_view kBefore = "\"body\":{\"attempt\":";
  const size_t at = head.find(kBefore);
  if (at == std::string::npos) return 0;
  int64_t attempt = 0;
  std::from_chars(head.data() + at + kBefore.size(), head.data() + head.size(), attempt);
  return attempt > 0 && attempt < kAttemptMax ? attempt : 0;
}

}  // namespace

AttemptFiles::AttemptFiles(Files& files, const std::string& output_dir) : files_(files) {
  const std::string folder = path_join(output_dir, contract::kCheckpointsDir);
  attempt_path_ = path_join(folder, contract::kAttemptFile);
  ended_path_ = path_join(folder, kEndedFile);
}

Result<int64_t> AttemptFiles::newest() const {
  DSJ_TRY(int64_t newest, read_attempt(files_, attempt_path_));
  const std::string folder = path_parent(attempt_path_);
  const auto entries = files_.list_dir(folder);
  if (!entries) return newest;  // there is no directory yet
  for (const DirEntry& entry : *entries)
    if (entry.name.starts_with("step-"))
      newest = std::max(newest, attempt_in_manifest(files_, path_join(path_join(folder, entry.name),
                                                                      kManifestFile)));
  return newest;
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
