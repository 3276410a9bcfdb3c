// The file port: every byte this program reads from or writes to a disk goes through Files, so that
// a test can count it, fail it, or kill the process at it.
//
// Who calls it: engine/weights, engine/checkpoint, engine/data, agent, cli.
// Implementations: PosixFiles (the disk), MemoryFiles (a full fake with a power-loss model).
// Decorators: CountingFiles (bytes), FaultyFiles (failures and deaths at the k-th write operation).
// Left out: memory maps, asynchronous I/O, locks.
//
// Paths are plain strings, '/' separated. Durability is POSIX's: content is durable after
// WriteFile::sync, a name (created, renamed, removed) after sync_dir of the directory that holds
// it. Errors: ErrorKind::BadInput when a path that should exist does not, ErrorKind::Environment
// for the rest (permission, no space, I/O), always with the path, the operation and the bytes in
// question. Threads: Files and ReadFile may be used by several threads at once; a WriteFile by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj {

/// An open file, read by position. Closed by its destructor.
class ReadFile {
 public:
  virtual ~ReadFile() = default;
  /// Fills `out` with the bytes from `offset` on. A file that ends earlier is an error.
  virtual Status read(int64_t offset, std::span<std::byte> out) const = 0;
  /// Size when it was opened.
  virtual int64_t size() const = 0;
};

/// A file being written, front to back. Destroyed without close(): closed, its content undefined.
class WriteFile {
 public:
  virtual ~WriteFile() = default;
  virtual Status append(std::span<const std::byte> bytes) = 0;
  /// Makes the content durable (fsync).
  virtual Status sync() = 0;
  /// Call once, last; reports what the operating system held back.
  virtual Status close() = 0;
};

enum class EntryKind { Absent, File, Directory };

struct DirEntry {
  std::string name;  ///< without the directory
  EntryKind kind = EntryKind::File;
  bool operator==(const DirEntry&) const = default;
};

class Files {
 public:
  virtual ~Files() = default;

  virtual Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) = 0;
  /// Creates the file, or empties the one that is there. Its directory must exist.
  virtual Result<std::unique_ptr<WriteFile>> create_write(const std::string& path) = 0;
  /// Atomic. Replaces a file, or an empty directory by a directory.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// Swaps two existing entries atomically. false: this file system cannot (nothing was changed).
  virtual Result<bool> exchange(const std::string& a, const std::string& b) = 0;
  /// Removes a file, a link or an empty directory.
  virtual Status remove(const std::string& path) = 0;
  /// Creates one directory; one that exists is fine.
  virtual Status make_dir(const std::string& path) = 0;
  /// Sorted by name. A link counts as a file.
  virtual Result<std::vector<DirEntry>> list_dir(const std::string& path) = 0;
  /// Follows links.
  virtual Result<EntryKind> kind(const std::string& path) = 0;
  /// Makes the names in this directory durable.
  virtual Status sync_dir(const std::string& path) = 0;

  // What follows is made of the above.

  Result<bool> exists(const std::string& path);
  /// The directory and its missing parents.
  Status make_dirs(const std::string& path);
  /// A tree, bottom up; links are removed, not followed. A path that does not exist is fine.
  Status remove_all(const std::string& path);
  /// A whole small file. More than `bytes_max` is an error, before a byte is read.
  Result<std::string> read_all(const std::string& path, int64_t bytes_max = 64 << 20);
  /// Durable content under a name that never shows less than the whole: "PATH.tmp", sync, rename,
  /// sync_dir.
  Status write_atomically(const std::string& path, std::string_view content);
  /// write_atomically without the rename: for a file in a directory that is itself not published
  /// yet.
  Status write_synced(const std::string& path, std::string_view content);
};

/// "a/b" + "c" → "a/b/c".
std::string path_join(std::string_view directory, std::string_view name);
/// "a/b/c" → "a/b"; "c" → "."; "/c" → "/". A trailing '/' is not a name.
std::string path_parent(std::string_view path);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace dsj
