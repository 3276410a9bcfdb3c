// Writes safetensors tensor by tensor. Everything is declared first and the header is written; then
// the values follow in pieces, in the declared order. Only a conversion buffer is held.
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
  /// Bytes of the whole file of these tensors, with the metadata of a model.
  static int64_t file_bytes(const std::vector<TensorDeclaration>& tensors);
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

/// Which of several ranks one is.
struct Share {
  int rank = 0, world = 1;
};

/// The rank that writes file number `file` of `files`. Fewer files than ranks: they are spread over
/// all ranks, and so over their hosts. File 0 is rank 0's.
int writer_of(size_t file, size_t files, int world);

/// A model's weights: model.safetensors, or if they are larger than `shard_bytes_max`
/// model-00001-of-0000N.safetensors ... and model.safetensors.index.json. A shard takes tensors in
/// order until the next does not fit; a tensor above the limit has a shard of its own. Several
/// ranks may write them, each some files, into one directory; the files are the same then.
class ModelWriter {
 public:
  /// Writes nothing yet.
  static Result<ModelWriter> create(Files& files, const std::string& directory,
                                    std::vector<TensorDeclaration> tensors,
                                    int64_t shard_bytes_max = kShardBytesMax);
  /// Leaves to this rank its files only (writer_of). Call it before the first append(); without it
  /// all files are this rank's.
  void deal(const Share& share);
  /// Whether the tensor is in one of this rank's files.
  bool writes(const std::string& name) const { return own_names_.contains(name); }
  size_t file_count() const { return shards_.size(); }
  bool has_files() const { return !own_.empty(); }  ///< this rank

  /// As in SafetensorsWriter, of the tensors that writes() names. It starts the next shard by
  /// itself. What is written becomes durable when a few more shards are open, or in finish_files().
  Status append(const std::string& name, std::span<const float> values);
  /// Makes this rank's files durable. All its tensors must be complete (DSJ_CHECK).
  Status finish_files();
  /// One rank, after every rank's finish_files(): checks that the files of all ranks are there in
  /// their size, and writes the index. Environment: one is not.
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
  std::vector<size_t> own_;  ///< of shards_, in order
  std::set<std::string> own_names_;
  size_t next_ = 0;                     ///< in own_: the shard to open next
  std::deque<SafetensorsWriter> open_;  ///< the last one is being written
};

}  // namespace dsj::weights
