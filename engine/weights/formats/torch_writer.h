// Writes files for torch.load: a zip archive with one pickle and one entry per tensor. Called by
// engine/deepspeed. torch_file.h reads it.
// Tested by: tests/engine/weights/torch_writer_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/formats/pickle_writer.h"
#include "engine/weights/formats/zip_writer.h"

namespace dsj::weights {

/// Writes one file as "PATH.partial"; finish() renames it. First all tensors are declared and the
/// pickle is written; then values are appended in the declared order. No tensor is kept in memory.
class TorchWriter {
 public:
  /// `files` must outlive the writer. Error: I/O.
  static Result<TorchWriter> create(Files& files, const std::string& path);

  /// Declares a contiguous fp32 tensor. Use the returned value once, in the root of begin().
  pickled::Value tensor(const std::vector<int64_t>& shape);
  /// Writes the pickle of `root`. Call it once, after the tensors are declared.
  Status begin(const pickled::Value& root);
  /// Appends values of the current tensor, row-major, never across two tensors (DSJ_CHECK).
  Status append(std::span<const float> values);
  /// All tensors must be complete (DSJ_CHECK). The caller syncs the directory.
  Status finish();

 private:
  explicit TorchWriter(ZipWriter zip) : zip_(std::move(zip)) {}
  /// Ends complete entries, including empty ones, and begins the next.
  Status advance();

  ZipWriter zip_;
  std::vector<int64_t> elements_;  ///< by tensor
  size_t index_ = 0;               ///< the current tensor
  int64_t left_ = 0;               ///< its remaining elements
};

}  // namespace dsj::weights
