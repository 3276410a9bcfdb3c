// The weights of a Hugging Face model directory, read by ranges of elements as fp32: a rank reads
// only the bytes of its shard, plus the headers.
//
// Files: model.safetensors, model.safetensors.index.json with its shards, pytorch_model.bin,
// pytorch_model.bin.index.json with its shards: the first that is there. Called by engine/zero
// (load) and engine/weights/export.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/safetensors.h"

namespace dsj::weights {

class WeightSource {
 public:
  /// Reads the headers of all files, nothing else. `files` must outlive the source.
  /// Errors: no weights in `directory`, a damaged file, an index that does not match its files.
  static Result<WeightSource> open(Files& files, const std::string& directory);
  /// The same of one file, whatever its name.
  static Result<WeightSource> open_file(Files& files, const std::string& path);

  /// All tensors, sorted by name; buffers that are no weights included.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// By its name, or, in a file saved from the bare model, by its name without the model's prefix
  /// (layout::name_without_prefix). nullptr: there is neither. Valid as long as the source.
  const TensorInfo* find(const std::string& name) const;
  /// Element type of the largest share of the bytes: what the model was saved in.
  DType dtype() const;
  /// The files behind it, absolute as `directory` was, for messages.
  std::vector<std::string> paths() const;

  /// Elements [offset, offset + out.size()) of a tensor as fp32, exact; row-major. Reads these
  /// bytes only. The name as find()'s. Errors: no such tensor, a dtype that is no weight's (F64,
  /// integers, 8-bit floats), I/O. A range outside the tensor cannot happen (DSJ_CHECK).
  /// Thread-safe.
  Status read(const std::string& name, int64_t offset, std::span<float> out) const;

 private:
  struct Source {
    std::string path;
    std::unique_ptr<ReadFile> file;
  };
  void sort();
  std::map<std::string, size_t>::const_iterator place_of(const std::string& name) const;
  Status add_file(Files& files, const std::string& path);
  Status add_index(Files& files, const std::string& directory, const std::string& index_path);

  std::vector<Source> sources_;
  std::vector<TensorInfo> tensors_;
  std::vector<size_t> source_of_;  ///< by tensor
  std::map<std::string, size_t> by_name_;
};

}  // namespace dsj::weights
