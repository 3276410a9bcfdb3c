// What a check of a large data file found (where its rows lie, that each is valid, and which of their
// fields nothing reads), kept by content: the next start on the same bytes finds it and does not parse them again. Tokens are not
// kept: a row is tokenized when it is used, never at the start.
//
// An entry is a file of the cache's directory (content_cache.h) and carries a checksum: a damaged entry is
// none. What cannot be kept is checked again. The key has no names of files in it, so a copy is known,
// too. Internal to engine/data; callers use dataset.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/files/content_cache.h"
#include "engine/data/shapes/sample.h"

namespace dsj::data {

struct Place {
  int64_t offset = 0, length = 0;
  bool operator==(const Place&) const = default;
};

/// A field of rows that nothing reads, or a shape, and how many rows have it.
struct UnreadField {
  std::string name;
  int64_t rows = 0;
  bool operator==(const UnreadField&) const = default;
};

struct CheckedRows {
  RowKind kind = RowKind::Alpaca;
  int64_t chat_template = 0;  ///< ChatTemplate::key() of the one that chat rows were checked with
  std::vector<Place> places;
  std::vector<UnreadField> unread = {};
  std::vector<UnreadField> shapes = {};    ///< of the rows (row_shape.h), and how many have each
  std::vector<UnreadField> left_out = {};  ///< why rows have no place, and how many
};

/// The key of a file's rows: XXH3-128 over its bytes and `conditions` (whatever else the check
/// depends on), as hexadecimal digits. Reads the file once. Error: it cannot be read.
Result<std::string> row_key(const ReadFile& file, const std::string& conditions);
/// The same of a file that was made from another, whose key `content` is.
std::string row_key(const std::string& content, const std::string& conditions);

/// An entry's bytes, and back. nullopt: damaged, of another key or version, or rows that do not lie
/// one behind the other within `file_bytes`.
std::string to_entry(const std::string& key, const CheckedRows& rows);
std::optional<CheckedRows> from_entry(const std::string& key, std::string_view entry,
                                      int64_t file_bytes);

struct RowCacheOptions {
  std::string directory;
  int64_t bytes_max = 256 << 20;  ///< of all entries; the oldest go first
  int64_t now = 0;                ///< seconds since 1970: the age of what is stored
  int64_t process = 0;            ///< its id: no other process writes under its temporary names
};

/// One caller at a time; other processes may use the same directory.
class RowCache {
 public:
  RowCache(Files& files, RowCacheOptions options);
  std::optional<CheckedRows> find(const std::string& key, int64_t file_bytes) const;
  /// Error: it could not be stored; nothing is lost by that.
  Status store(const std::string& key, const CheckedRows& rows);

 private:
  Files& files_;
  const int64_t bytes_max_;
  ContentCache entries_;
};

/// Where this machine keeps them: $XDG_CACHE_HOME/dsj/rows, else $HOME/.cache/dsj/rows. Empty:
/// nowhere, because DSJ_ROWS_CACHE is 0, or because neither variable is set.
std::string row_cache_directory(const std::function<const char*(const char*)>& variable);

}  // namespace dsj::data
