#include "engine/data/files/content_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <functional>
#include <utility>

#include "common/format.h"

namespace dsj::data {
namespace {

constexpr size_t kAgeDigits = 12;

/// The age (seconds since 1970) in an entry's name; 0 if there is none.
int64_t age_of(const std::string& name) {
  int64_t age = 0;
  std::from_chars(name.data(), name.data() + std::min(name.size(), kAgeDigits), age);
  return age;
}

}  // namespace

std::string ContentCache::path(const std::string& key) const {
  // Names begin with the age, so that sorting by name sorts by age.
  const std::string age = text::format("%012lld-", static_cast<long long>(options_.now));
  return path_join(options_.directory, age + key + options_.suffix);
}

std::string ContentCache::lock_path(const std::string& key) const {
  return path_join(options_.directory, key + ".lock");
}

std::vector<std::string> ContentCache::find(const std::string& key) const {
  std::vector<std::string> found;
  const auto entries = files_.list_dir(options_.directory);
  if (!entries) return found;
  for (const DirEntry& entry : *entries)
    if (entry.name.ends_with("-" + key + options_.suffix))
      found.push_back(path_join(options_.directory, entry.name));
  return found;
}

Result<std::string> ContentCache::temporary(const std::string& key) const {
  DSJ_TRY_STATUS(files_.make_dirs(options_.directory));
  // Unlike write_atomically()'s, this name differs between writers.
  return path(key) + "." + std::to_string(options_.process) + ".tmp";
}

Status ContentCache::publish(const std::string& key) {
  DSJ_TRY(const std::string written, temporary(key));
  DSJ_TRY_STATUS(files_.rename(written, path(key)));
  return prune();
}

/// Removes the oldest entries until the rest fits, including temporary files of dead processes.
Status ContentCache::prune() {
  DSJ_TRY(auto entries, files_.list_dir(options_.directory));
  std::ranges::sort(entries, std::greater{}, &DirEntry::name);  // newest first
  int64_t total = 0;
  for (const DirEntry& entry : entries) {
    if (entry.name.find(options_.suffix) == entry.name.npos) continue;
    const std::string path = path_join(options_.directory, entry.name);
    if (total <= options_.bytes_max) {
      const auto file = files_.open_read(path);
      if (!file) continue;  // another process removed it
      total += (*file)->size();
    }
    const bool young = options_.now - age_of(entry.name) < options_.kept_seconds;
    if (total > options_.bytes_max && !young) (void)files_.remove(path);
  }
  return {};
}

ProcessLock::ProcessLock(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0) return;
  while (::flock(file_, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    ::close(file_);
    file_ = -1;
    return;
  }
}

ProcessLock::~ProcessLock() {
  if (file_ < 0) return;
  ::unlink(path_.c_str());  // waiting processes find the stored entry
  ::close(file_);
}

}  // namespace dsj::data
