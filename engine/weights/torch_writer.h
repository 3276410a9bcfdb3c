// Writes what torch.load reads: a zip archive with one pickle and one entry per tensor. Called by engine/deepspeed.
// torch_file.h reads it.
// Tested by: tests/engine/weights/torch_writer_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/pickle_writer.h"
#include "engine/weights/zip_writer.h"

namespace dsj::weights {

/// One file. First every tensor is declared and the pickle is written; then the values follow in pieces, in the
/// declared order. No tensor is held. It is written as "PATH.partial"; finish() gives it its name.
class TorchWriter {
 public:
  /// `files` must outlive the writer. Error: I/O.
  static Result<TorchWriter> create(Files& files, const std::string& path);

  /// Declares a contiguous fp32 tensor. Its value is to be used once, in the root of begin().
  pickled::Value tensor(const std::vector<int64_t>& shape);
  /// Writes the pickle of `root`. Call it once, after the tensors are declared.
  Status begin(const pickled::Value& root);
  /// The next values of the current tensor, row-major. A piece does not reach into the next tensor (DSJ_CHECK).
  Status append(std::span<const float> values);
  /// All tensors must be complete (DSJ_CHECK). The caller syncs the directory.
  Status finish();

 private:
  explicit TorchWriter(ZipWriter zip) : zip_(std::move(zip)) {}
  /// Ends entries that are complete, empty ones included, and begins the next.
  Status advance();

  ZipWriter zip_;
  std::vector<int64_t> elements_;  ///< by tensor
  size_t index_ = 0;               ///< the tensor being written
  int64_t left_ = 0;               ///< its elements to come
};

}  // namespace dsj::weights
