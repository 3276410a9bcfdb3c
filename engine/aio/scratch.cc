#include "engine/aio/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

namespace dsj::aio {
namespace {

constexpr char kLockFile[] = "lock";

std::string plain(const std::string& job) {
  std::string out;
  for (const char c : job) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-';
    out += kept ? c : '-';
  }
  return out;
}

std::string directory_name(const ScratchName& name) {
  return "dsj_" + plain(name.job) + "_" + std::to_string(name.attempt) + "_" +
         std::to_string(name.rank);
}

/// The attempt of a directory of `job`; nullopt for other directories.
std::optional<int64_t> attempt_of(const std::string& entry, const std::string& job) {
  const std::string prefix = "dsj_" + plain(job) + "_";
  if (!entry.starts_with(prefix)) return std::nullopt;
  const char* end = entry.data() + entry.size();
  int64_t attempt = 0, rank = 0;
  const auto first = std::from_chars(entry.data() + prefix.size(), end, attempt);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '_') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, rank);
  if (second.ec != std::errc{} || second.ptr != end) return std::nullopt;
  return attempt;
}

std::vector<std::string> entries_of(const std::string& path) {
  std::vector<std::string> names;
  if (DIR* directory = ::opendir(path.c_str())) {
    while (const dirent* entry = ::readdir(directory)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    ::closedir(directory);
  }
  return names;
}

/// Removes plain files only and enters no directories. Removes the lock last, because it identifies
/// a leftover.
void remove_files(const std::string& path) {
  for (const auto& name : entries_of(path))
    if (name != kLockFile) ::unlink((path + "/" + name).c_str());
  ::unlink((path + "/" + kLockFile).c_str());
  ::rmdir(path.c_str());
}

}  // namespace

Result<std::unique_ptr<Scratch>> Scratch::make(const std::string& root, const ScratchName& name,
                                               const std::string& key) {
  if (root.empty()) return bad_input("no path is given", key, "name a directory on a fast disk");
  std::unique_ptr<Scratch> made(new Scratch);
  made->root_ = root;
  made->key_ = key;
  made->path_ = root + "/" + directory_name(name);
  if (::mkdir(root.c_str(), 0777) == 0) {
    made->made_root_ = true;
    made->notes_.push_back("made the directory " + root);
  } else if (errno == ENOENT || errno == ENOTDIR) {
    return bad_input("\"" + root + "\": the directory that it should be in does not exist", key,
                     "create it, or correct the path");
  } else if (errno != EEXIST) {
    return fail(ErrorKind::Environment, "\"" + root + "\": making it: " + errno_text(errno), key);
  }
  struct stat there {};
  if (::stat(root.c_str(), &there) != 0 || !S_ISDIR(there.st_mode))
    return bad_input("\"" + root + "\" is not a directory", key, "name a directory");
  made->remove_dead(name);
  // Another attempt that starts now may mistake a directory without a held lock for a leftover, and
  // hold the lock while it removes it. So this retries.
  constexpr int kTries = 40;
  Held held = Held::Yes;
  for (int i = 0; i < kTries; ++i) {
    DSJ_TRY(held, made->hold());
    if (held == Held::Yes) return made;
    if (held == Held::ByAnother) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (held == Held::ByAnother)
    return fail(ErrorKind::Environment, "\"" + made->path_ + "\" is in use by another process", key,
                "give one of the jobs another name or another path");
  return fail(ErrorKind::Environment, "\"" + made->path_ + "\": another process keeps removing it",
              key, "give one of the jobs another name or another path");
}

Result<Scratch::Held> Scratch::hold() {
  if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(ErrorKind::Environment, "\"" + path_ + "\": making it: " + errno_text(errno), key_,
                "the directory must be writable");
  }
  const std::string file = path_ + "/" + kLockFile;
  const int lock = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0 && errno == ENOENT) return Held::Removed;
  if (lock < 0)
    return fail(ErrorKind::Environment, "\"" + file + "\": creating it: " + errno_text(errno),
                key_);
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(lock);
    return Held::ByAnother;
  }
  struct stat locked {
  }, named{};
  if (::fstat(lock, &locked) != 0 || ::stat(file.c_str(), &named) != 0 ||
      locked.st_ino != named.st_ino) {
    ::close(lock);
    return Held::Removed;
  }
  lock_ = lock;
  return Held::Yes;
}

void Scratch::remove_dead(const ScratchName& name) {
  for (const auto& entry : entries_of(root_)) {
    const auto attempt = attempt_of(entry, name.job);
    // Another rank may be making a directory of this attempt right now.
    const bool mine = entry == directory_name(name);
    if (!attempt || (*attempt == name.attempt && !mine)) continue;
    const std::string path = root_ + "/" + entry;
    const int lock = ::open((path + "/" + kLockFile).c_str(), O_RDWR | O_CLOEXEC);
    if (lock >= 0 && ::flock(lock, LOCK_EX | LOCK_NB) == 0) {
      remove_files(path);
      warnings_.push_back("removed " + path + ", left by a process that is dead");
    }
    if (lock >= 0) ::close(lock);
  }
}

Scratch::~Scratch() {
  if (lock_ < 0) return;
  remove_files(path_);
  ::close(lock_);
  if (made_root_) ::rmdir(root_.c_str());
}

Result<Created> Scratch::create(const std::string& file, int64_t bytes, const Options& options,
                                const std::string& only) const {
  auto created = create_block_file(path_ + "/" + file, bytes, options, only);
  if (!created) {
    Error error = created.error();
    error.message = error.where + ": " + error.message;
    error.where = key_;
    return std::unexpected(error);
  }
  return created;
}

}  // namespace dsj::aio
