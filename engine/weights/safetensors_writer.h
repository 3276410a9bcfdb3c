// Writes safetensors tensor by tensor. Everything is declared first and the header is written; then
// the values follow in pieces, in the declared order. Only a conversion buffer is held.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/dtype.h"

namespace dsj::weights {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::F32;  ///< F32, BF16 or F16
  std::vector<int64_t> shape;
  int64_t elements() const;
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
};

/// One file. It is written as "PATH.partial"; finish() syncs it and gives it its name.
class SafetensorsWriter {
 public:
  /// Writes the header. `files` must outlive the writer. Error: I/O. A repeated name, a type that
  /// is not a weight's or a negative extent cannot happen here (DSJ_CHECK).
  static Result<SafetensorsWriter> create(Files& files, const std::string& path,
                                          std::vector<TensorDeclaration> tensors,
                                          const std::map<std::string, std::string>& metadata = {
                                              {"format", "pt"}});

  /// Takes the next values of `name`, row-major, and converts them to its declared type (to
  /// nearest, ties to even). Tensors come in the declared order, each completely (DSJ_CHECK).
  Status append(const std::string& name, std::span<const float> values);
  /// The same for bytes of the declared type: little-endian, whole elements.
  Status append_bytes(const std::string& name, std::span<const std::byte> bytes);
  /// Syncs, closes, renames. All tensors must be complete (DSJ_CHECK). The caller syncs the
  /// directory.
  Status finish();

  bool complete() const;
  int64_t bytes_written() const { return bytes_written_; }

 private:
  const TensorDeclaration& current(const std::string& name);
  void skip_complete();

  Files* files_ = nullptr;
  std::string path_;
  std::vector<TensorDeclaration> tensors_;
  std::unique_ptr<WriteFile> file_;
  size_t index_ = 0;      ///< tensor being written
  int64_t position_ = 0;  ///< its bytes so far
  int64_t bytes_written_ = 0;
  std::vector<uint16_t> staged_;
};

/// "5GB", the default of save_pretrained's max_shard_size.
inline constexpr int64_t kShardBytesMax = 5'000'000'000;

/// A model's weights: model.safetensors, or if they are larger than `shard_bytes_max`
/// model-00001-of-0000N.safetensors ... and model.safetensors.index.json. A shard takes tensors in
/// order until the next does not fit; a tensor above the limit has a shard of its own.
class ModelWriter {
 public:
  static Result<ModelWriter> create(Files& files, const std::string& directory,
                                    std::vector<TensorDeclaration> tensors,
                                    int64_t shard_bytes_max = kShardBytesMax);
  /// As in SafetensorsWriter. It starts the next shard by itself.
  Status append(const std::string& name, std::span<const float> values);
  /// Finishes the last shard and writes the index.
  Status finish();

 private:
  struct Shard {
    std::string file_name;
    std::vector<TensorDeclaration> tensors;
  };
  Status next_shard();
  Status write_index();

  Files* files_ = nullptr;
  std::string directory_;
  std::vector<Shard> shards_;
  size_t shard_ = 0;  ///< the open shard
  std::unique_ptr<SafetensorsWriter> writer_;
};

}  // namespace dsj::weights
