// Writes a zip archive with uncompressed entries. minizip writes the container, including zip64.
// Internal to engine/weights.
// Tested by: tests/engine/weights/torch_writer_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::weights {

class ZipWriter {
 public:
  /// Entries begin at multiples of it, so that mapped tensors are aligned.
  static constexpr int64_t kAlignment = 64;

  /// Writes PATH.partial; finish() renames it. `files` must outlive the writer.
  static Result<ZipWriter> create(Files& files, const std::string& path);
  ZipWriter(ZipWriter&&) noexcept;
  ZipWriter& operator=(ZipWriter&&) noexcept;
  ~ZipWriter();

  /// Begins an entry of `bytes` bytes, to be appended.
  Status begin(const std::string& name, int64_t bytes);
  Status append(std::span<const std::byte> bytes);
  Status end();
  /// Writes a whole entry.
  Status add(const std::string& name, std::string_view content);
  /// Writes the directory, syncs, closes, renames. The caller syncs the directory of the file.
  Status finish();

 private:
  struct Archive;
  explicit ZipWriter(std::unique_ptr<Archive> archive);
  std::unique_ptr<Archive> archive_;
};

}  // namespace dsj::weights
