// Caches the result of checking a large data file: offsets of its rows, that each is valid, and
// which fields are not read. The next start on the same bytes does not parse them again. Tokens
// are not cached: a row is tokenized when it is used, never at the start.
//
// An entry is a file of the cache's directory (content_cache.h) with a checksum; a damaged
// entry is ignored and the file checked again. The key contains no file names, so a copy of a
// file hits, too. Internal to engine/data; callers use dataset.h.
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

/// The name of an unread field, a shape or a reason, and the number of rows that have it.
struct UnreadField {
  std::string name;
  int64_t rows = 0;
  bool operator==(const UnreadField&) const = default;
};

struct CheckedRows {
  RowKind kind = RowKind::Alpaca;
  int64_t chat_template = 0;  ///< ChatTemplate::key() of the template that checked chat rows
  std::vector<Place> places;
  std::vector<UnreadField> unread = {};
  std::vector<UnreadField> shapes = {};    ///< shapes (row_shape.h) and their rows
  std::vector<UnreadField> left_out = {};  ///< reasons why rows were left out, and their rows
};

/// The key of a file's rows: XXH3-128 over its bytes and `conditions` (everything else that the
/// check depends on), as hexadecimal digits. Reads the file once. Errors: the file cannot be read.
Result<std::string> row_key(const ReadFile& file, const std::string& conditions);
/// The same for a file that was made from another file with the key `content`.
std::string row_key(const std::string& content, const std::string& conditions);

/// Writes and reads an entry. nullopt if it is damaged, has another key or version, or if its
/// rows do not follow each other within `file_bytes`.
std::string to_entry(const std::string& key, const CheckedRows& rows);
std::optional<CheckedRows> from_entry(const std::string& key, std::string_view entry,
                                      int64_t file_bytes);

struct RowCacheOptions {
  std::string directory;
  int64_t bytes_max = 256 << 20;  ///< limit for all entries; the oldest are removed first
  int64_t now = 0;                ///< seconds since 1970; the age of new entries
  int64_t process = 0;            ///< process id, which makes temporary names unique
};

/// One caller at a time; other processes may use the same directory.
class RowCache {
 public:
  RowCache(Files& files, RowCacheOptions options);
  std::optional<CheckedRows> find(const std::string& key, int64_t file_bytes) const;
  /// Errors: it could not be stored, which is harmless.
  Status store(const std::string& key, const CheckedRows& rows);

 private:
  Files& files_;
  const int64_t bytes_max_;
  ContentCache entries_;
};

/// The cache's directory: $XDG_CACHE_HOME/dsj/rows, else $HOME/.cache/dsj/rows. Empty if
/// DSJ_ROWS_CACHE is 0, or if neither variable is set.
std::string row_cache_directory(const std::function<const char*(const char*)>& variable);

}  // namespace dsj::data
