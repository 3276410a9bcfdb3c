// Reads a checkpoint by ranges, at any world size. A rank reads the elements that it owns now: only
// the parts with them are opened, only their blocks are read, and each block is checked once.
// Called by engine/zero (resume). search.h finds the checkpoint to read.
// Tested by: tests/engine/checkpoint/checkpoint_test.cc, tests/engine/checkpoint/reader_test.cc
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
#include "engine/checkpoint/saved_run.h"

namespace dsj::checkpoint {

/// One thread at a time. Errors are damage (damage.h) or the reason why a file could not be read;
/// they name the file.
class Reader : public SavedRun {
 public:
  /// The maximum number of open data files. A rank that reads the slices of at most that many ranks
  /// opens each part once; with more ranks it reopens parts for each chunk.
  static constexpr size_t kFilesOpenMax = 128;

  /// Reads manifest.json, and no part. (Without holders in the manifest, the index of every part.)
  /// `path`: the checkpoint's own directory. `files` must outlive the reader.
  static Result<Reader> open(Files& files, const std::string& path);

  const std::string& path() const override { return path_; }
  int64_t step() const override { return manifest_.step; }
  int64_t attempt() const { return manifest_.attempt; }
  /// The number of ranks that wrote it; any number may read it.
  int world() const { return manifest_.world; }
  const nlohmann::json& run_state() const override { return manifest_.run_state; }
  const std::vector<Extent>& extents() const { return manifest_.extents; }
  /// nullopt if the checkpoint has no such tensor.
  std::optional<int64_t> elements(const std::string& state,
                                  const std::string& param) const override;

  /// Reads elements [offset, offset + out.size()). BadInput: no such tensor, or a range outside it.
  /// Damage, with file, block and tensor: a block does not match its checksum.
  Status read(const std::string& state, const std::string& param, int64_t offset,
              std::span<float> out) override;

  /// Reads the index of every part, and checks that every data file exists with its size.
  Status check_parts();
  /// Reads and checks every block of every file.
  Status verify();

 private:
  /// A run of elements in a part's file.
  struct Located {
    int32_t extent = 0;
    int64_t offset = 0, length = 0;
    int64_t file_offset = 0;
  };
  /// A part's index, and which of its blocks are verified.
  struct Source {
    std::string path;
    int64_t bytes = 0, block_bytes = 0;
    std::vector<uint64_t> blocks;
    std::vector<bool> verified;
    std::vector<Located> located;  ///< by extent and offset
  };
  struct OpenFile {
    int part = 0;
    std::unique_ptr<ReadFile> file;
  };

  Status read_elements(int32_t extent, int64_t offset, std::span<float> out);
  /// The index of a part; read at its first use.
  Result<Source*> source(int part);
  /// The data file of a part. Valid until the next call.
  Result<const ReadFile*> file(int part, const Source& source);
  Status find_holders();
  Status read_bytes(int part, Source& source, int64_t begin, std::span<std::byte> out);
  /// Reads whole blocks in one call.
  Status read_blocks(int part, Source& source, int64_t first, std::span<std::byte> out);
  Status load_cached_block(int part, Source& source, int64_t block);

  Files* files_ = nullptr;
  std::string path_;
  Manifest manifest_;
  std::map<std::pair<std::string, std::string>, int32_t> numbers_;  ///< of manifest_.extents
  std::map<int, std::unique_ptr<Source>> sources_;                  ///< by part
  std::vector<OpenFile> open_;                                      ///< oldest first
  /// The last block of which only a part was requested: the next tensor often begins in it.
  int cached_part_ = -1;
  int64_t cached_block_ = -1;
  std::vector<std::byte> cached_;
};

}  // namespace dsj::checkpoint
