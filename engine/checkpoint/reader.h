// Reads a checkpoint by ranges, at any world size. A rank asks for the elements that it owns now;
// only the blocks that hold them are read, and each is checked once. Called by engine/zero (resume)
// and engine/train (which checkpoint is newest).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/layout.h"
#include "engine/checkpoint/retention.h"

namespace dsj::checkpoint {

/// One thread at a time.
class Reader {
 public:
  /// Reads manifest.json and all rank-*.json, and checks that every data file has its size. `path`:
  /// the checkpoint's own directory. `files` must outlive the reader. Errors name the file:
  /// BadInput if it is missing, else Environment.
  static Result<Reader> open(Files& files, const std::string& path);

  const std::string& path() const { return path_; }
  int64_t step() const { return manifest_.step; }
  int64_t attempt() const { return manifest_.attempt; }
  /// The number of ranks that wrote it; any number may read it.
  int world() const { return manifest_.world; }
  const nlohmann::json& run_state() const { return manifest_.run_state; }
  const std::vector<Extent>& extents() const { return manifest_.extents; }
  /// nullopt: the checkpoint has no such tensor.
  std::optional<int64_t> elements(const std::string& state, const std::string& param) const;

  /// Reads elements [offset, offset + out.size()). BadInput: no such tensor, or a range outside it.
  /// Environment, with file, block and tensor: a block does not match its checksum, or cannot be
  /// read.
  Status read(const std::string& state, const std::string& param, int64_t offset,
              std::span<float> out);

  /// Reads and checks every block of every file.
  Status verify();

 private:
  struct Source {
    std::string path;
    std::unique_ptr<ReadFile> file;
    int64_t bytes = 0, block_bytes = 0;
    std::vector<uint64_t> blocks;
    std::vector<bool> verified;
  };
  struct Located {
    int64_t offset = 0, length = 0;
    size_t source = 0;
    int64_t file_offset = 0;
  };

  Status add_part(Files& files, int rank);
  Status read_bytes(size_t source, int64_t begin, std::span<std::byte> out);
  /// Reads whole blocks in one call.
  Status read_blocks(Source& source, int64_t first, std::span<std::byte> out);
  Status load_cached_block(size_t source, int64_t block);

  std::string path_;
  Manifest manifest_;
  std::vector<Source> sources_;
  std::map<std::pair<std::string, std::string>, std::vector<Located>> located_;
  std::map<std::pair<std::string, std::string>, int64_t> elements_;
  /// The last block that was only partly asked for: often the next tensor begins in it.
  size_t cached_source_ = SIZE_MAX;
  int64_t cached_block_ = -1;
  std::vector<std::byte> cached_;
};

/// The checkpoints of a directory, to be tried from the newest (retention.h defines newest) to the
/// oldest. All ranks that see one directory have the same list, so they can agree on an index.
class Search {
 public:
  /// There need not be a checkpoint, nor the directory. Error: the directory cannot be read.
  static Result<Search> begin(Files& files, const std::string& checkpoints_dir);

  int count() const { return static_cast<int>(candidates_.size()); }
  /// Of all names in order: equal where the lists are equal. 32 bits.
  uint32_t fingerprint() const;
  /// Opens the first complete one from `index` on and returns its index; count(): there is none.
  /// Those before it are passed over.
  int open(int index);
  /// What the last open() found. Precondition: it returned less than count().
  Reader& reader() { return *reader_; }
  /// Why this search passed over `index`; nullopt: it did not.
  std::optional<Error> problem(int index) const;
  /// Notes why `index` is passed over: seen while it was read, or by another rank.
  void reject(int index, const Error& problem);

  struct Passed {
    std::string name;     ///< in the checkpoints directory
    std::string problem;  ///< with the file
  };
  /// Those that could be newer than the open one and are passed over, and why.
  std::vector<Passed> passed_over() const;
  /// Why there is none: Environment, naming the newest that was passed over. Precondition: there are
  /// checkpoints, and each was passed over.
  Error nothing_left() const;

 private:
  Files* files_ = nullptr;
  std::string directory_;
  std::vector<Candidate> candidates_;
  std::map<int, Error> problems_;  ///< [index]
  int open_ = 0;
  std::optional<Reader> reader_;
};

struct Newest {
  std::optional<Reader> reader;       ///< unset: there is no checkpoint
  std::vector<std::string> warnings;  ///< newer checkpoints that were passed over, and why
};

/// The newest complete checkpoint. A broken one is passed over with a warning if an older complete
/// one exists; if none is complete the error names the broken file. There need not be a checkpoint,
/// nor the directory.
Result<Newest> newest(Files& files, const std::string& checkpoints_dir);

}  // namespace dsj::checkpoint
