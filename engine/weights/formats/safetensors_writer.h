// Writes safetensors tensor by tensor. First all tensors are declared and the header is written;
// then values are appended in the declared order. Only a conversion buffer is in memory.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/formats/dtype.h"

namespace dsj::weights {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::F32;  ///< F32, BF16 or F16
  std::vector<int64_t> shape;
  int64_t elements() const;
  int64_t bytes() const { return elements() * dtype_bytes(dtype); }
};

/// Writes one file as "PATH.partial"; finish() syncs and renames it.
class SafetensorsWriter {
 public:
  /// Writes the header. `files` must outlive the writer. Error: I/O. DSJ_CHECK: a repeated name, a
  /// type that is not a weight's, a negative extent.
  static Result<SafetensorsWriter> create(Files& files, const std::string& path,
                                          std::vector<TensorDeclaration> tensors,
                                          const std::map<std::string, std::string>& metadata = {
                                              {"format", "pt"}});

  /// Appends the next values of `name`, row-major, converted to its declared type (to nearest, ties
  /// to even). Tensors must be complete and in the declared order (DSJ_CHECK).
  Status append(const std::string& name, std::span<const float> values);
  /// The same with bytes of the declared type: little-endian, whole elements.
  Status append_bytes(const std::string& name, std::span<const std::byte> bytes);
  /// Syncs, closes, renames. All tensors must be complete (DSJ_CHECK). The caller syncs the
  /// directory.
  Status finish();

  bool complete() const;
  /// The size of a file with these tensors and a model's metadata, in bytes.
  static int64_t file_bytes(const std::vector<TensorDeclaration>& tensors);
  int64_t bytes_written() const { return bytes_written_; }

 private:
  const TensorDeclaration& current(const std::string& name);
  void skip_complete();

  Files* files_ = nullptr;
  std::string path_;
  std::vector<TensorDeclaration> tensors_;
  std::unique_ptr<WriteFile> file_;
  size_t index_ = 0;      ///< the current tensor
  int64_t position_ = 0;  ///< its bytes so far
  int64_t bytes_written_ = 0;
  std::vector<uint16_t> staged_;
};

/// "5GB", the default of save_pretrained's max_shard_size.
inline constexpr int64_t kShardBytesMax = 5'000'000'000;

/// A rank among several that share work.
struct Share {
  int rank = 0, world = 1;
};

/// The rank that writes file number `file` of `files`. If there are fewer files than ranks, they
/// are spread evenly over the ranks, and so over hosts. Rank 0 writes file 0.
int writer_of(size_t file, size_t files, int world);

/// Writes a model's weights: model.safetensors, or if larger than `shard_bytes_max`
/// model-00001-of-0000N.safetensors ... and model.safetensors.index.json. A shard takes tensors in
/// order until the next does not fit; a tensor above the limit gets its own shard. Several ranks
/// may write the files into one directory, each some of them; the files are the same then.
class ModelWriter {
 public:
  /// Writes nothing yet.
  static Result<ModelWriter> create(Files& files, const std::string& directory,
                                    std::vector<TensorDeclaration> tensors,
                                    int64_t shard_bytes_max = kShardBytesMax);
  /// Restricts this rank to its files (writer_of). Call it before the first append(); without it,
  /// this rank writes all files.
  void deal(const Share& share);
  /// Whether the tensor is in one of this rank's files.
  bool writes(const std::string& name) const { return own_names_.contains(name); }
  size_t file_count() const { return shards_.size(); }
  bool has_files() const { return !own_.empty(); }  ///< whether this rank has any

  /// As in SafetensorsWriter, for the tensors that writes() names. Starts the next shard by itself.
  /// Files become durable when a few more shards are open, or in finish_files().
  Status append(const std::string& name, std::span<const float> values);
  /// Makes this rank's files durable. All its tensors must be complete (DSJ_CHECK).
  Status finish_files();
  /// Call it on one rank after every rank's finish_files(): checks that all ranks' files exist with
  /// their sizes, and writes the index. Environment: a file is missing or has another size.
  Status finish();

 private:
  struct Shard {
    std::string file_name;
    std::vector<TensorDeclaration> tensors;
  };
  Status next_shard();
  Status finish_oldest();
  Status check_file(const Shard& shard) const;
  Status write_index();

  Files* files_ = nullptr;
  std::string directory_;
  std::vector<Shard> shards_;
  std::vector<size_t> own_;  ///< indices in shards_, ascending
  std::set<std::string> own_names_;
  size_t next_ = 0;                     ///< index in own_ of the next shard to open
  std::deque<SafetensorsWriter> open_;  ///< the last one is the current one
};

}  // namespace dsj::weights
