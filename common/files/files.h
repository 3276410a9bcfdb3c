// The file port. All disk I/O of a program goes through Files, so a test can count it, fail it, or
// kill the process at any operation.
//
// engine/weights, engine/checkpoint, engine/data, agent and cli use it.
// Implementations: PosixFiles (the disk), MemoryFiles (a full fake with a power-loss model).
// Decorators: CountingFiles (counts), FaultyFiles (failures and deaths at the k-th write
// operation). Left out: memory maps, asynchronous I/O, locks.
//
// Paths are plain strings with '/'. Durability is POSIX's: content is durable after
// WriteFile::sync, a name (created, renamed, removed) after sync_dir of its directory. Errors are
// BadInput for a missing path that should exist, Transient for what may vanish, Environment for all
// else (file_error.h). They name path, operation and bytes. Threads may share a Files or a
// ReadFile; a WriteFile belongs to one thread.
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

/// An open file, read by position. Its destructor closes it.
class ReadFile {
 public:
  virtual ~ReadFile() = default;
  /// Fills `out` with the bytes from `offset` on. Errors: if the file ends earlier.
  virtual Status read(int64_t offset, std::span<std::byte> out) const = 0;
  /// The size at the time of opening.
  virtual int64_t size() const = 0;
};

/// A file that is written front to back; parts of it, like a header, may be replaced later. The
/// destructor closes it; without close() its content is undefined.
class WriteFile {
 public:
  virtual ~WriteFile() = default;
  virtual Status append(std::span<const std::byte> bytes) = 0;
  /// Replaces appended bytes; [offset, offset + bytes.size()) must be in the file.
  virtual Status rewrite(int64_t offset, std::span<const std::byte> bytes) = 0;
  /// Makes the content durable (fsync).
  virtual Status sync() = 0;
  /// Call once, last. Reports errors that the operating system deferred.
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
  /// Creates the file, or truncates an existing one. Its directory must exist.
  virtual Result<std::unique_ptr<WriteFile>> create_write(const std::string& path) = 0;
  /// Atomic. Replaces a file; a directory replaces an empty directory.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// Swaps two existing entries atomically. false: this file system cannot; nothing changed.
  virtual Result<bool> exchange(const std::string& a, const std::string& b) = 0;
  /// Removes a file, a link or an empty directory.
  virtual Status remove(const std::string& path) = 0;
  /// Creates one directory; it may already exist.
  virtual Status make_dir(const std::string& path) = 0;
  /// Sorted by name. A link counts as a file.
  virtual Result<std::vector<DirEntry>> list_dir(const std::string& path) = 0;
  /// Follows links.
  virtual Result<EntryKind> kind(const std::string& path) = 0;
  /// Makes the names in this directory durable.
  virtual Status sync_dir(const std::string& path) = 0;

  // The functions below use those above.

  Result<bool> exists(const std::string& path);
  /// Creates the directory and its missing parents.
  Status make_dirs(const std::string& path);
  /// Removes a tree, bottom up. Links are removed, not followed. The path need not exist.
  Status remove_all(const std::string& path);
  /// Reads a whole small file. Errors, before reading: if it has more than `bytes_max`.
  Result<std::string> read_all(const std::string& path, int64_t bytes_max = 64 << 20);
  /// Writes durable content so that readers never see a part of it: "PATH.tmp", sync, rename,
  /// sync_dir.
  Status write_atomically(const std::string& path, std::string_view content);
  /// As write_atomically, without the rename: for a file in a directory that is not yet published.
  Status write_synced(const std::string& path, std::string_view content);
};

/// "a/b" + "c" → "a/b/c".
std::string path_join(std::string_view directory, std::string_view name);
/// "a/b/c" → "a/b"; "c" → "."; "/c" → "/". A trailing '/' is ignored.
std::string path_parent(std::string_view path);

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace dsj
