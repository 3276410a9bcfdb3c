// Reads the weights of a Hugging Face model directory by ranges of elements as fp32: a rank reads
// the headers and only its own shard's bytes. Called by engine/zero (load) and engine/weights.
//
// Uses the first of these that exists: model.safetensors, model.safetensors.index.json with its
// shards, pytorch_model.bin, pytorch_model.bin.index.json with its shards.
//
// Packed weights (packed_weights.h) appear as their unpacked BF16 tensors. If a model's published
// files have one tensor for all experts of a layer, files with a tensor per expert appear so.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/formats/packed_weights.h"
#include "engine/weights/formats/safetensors.h"

namespace dsj::weights {

class WeightSource {
 public:
  /// Reads only the headers of all files. `files` must outlive the source. Errors: no weights in
  /// `directory`, a damaged file, an index that does not match its files.
  static Result<WeightSource> open(Files& files, const std::string& directory);
  /// The same for one file of any name.
  static Result<WeightSource> open_file(Files& files, const std::string& path);

  /// All tensors, sorted by name, including buffers that are not weights.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// Finds a tensor by its name; in a file saved from the bare model by the name without the
  /// model's prefix (layout::name_without_prefix); in a file that transformers saved from the text
  /// part of a larger model by its name there. nullptr: none. Valid as long as the source.
  const TensorInfo* find(const std::string& name) const;
  /// The type of most bytes: that of the saved model.
  DType dtype() const;
  /// The paths of the files, for messages; absolute if `directory` was.
  std::vector<std::string> paths() const;

  /// Reads elements [offset, offset + out.size()) of a tensor as fp32, exactly, row-major, and only
  /// their bytes. `name`: as for find(). Errors: no such tensor, a dtype that is not a weight's
  /// (F64, integers, 8-bit floats), I/O. DSJ_CHECK: a range outside the tensor. Thread-safe.
  Status read(const std::string& name, int64_t offset, std::span<float> out) const;
  /// Reads a whole tensor, about a million elements at a time, a matrix by whole rows: calls
  /// visit(index of the first element, values). Errors: as read(), or the first of `visit`.
  Status read_rows(const TensorInfo& tensor,
                   const std::function<Status(int64_t, std::span<float>)>& visit) const;

 private:
  struct Source {
    std::string path;
    std::unique_ptr<ReadFile> file;
  };
  /// Call it once all files are known.
  Status unpack(Files& files, const std::string& directory);
  void join_experts(Files& files, const std::string& directory);
  void sort();
  std::map<std::string, size_t>::const_iterator place_of(const std::string& name) const;
  /// Reads a tensor of source `source` as stored in its file.
  Status read_from(const TensorInfo& tensor, size_t source, int64_t offset,
                   std::span<float> out) const;
  Status add_file(Files& files, const std::string& path);
  Status add_index(Files& files, const std::string& directory, const std::string& index_path);

  std::vector<Source> sources_;
  std::vector<TensorInfo> tensors_;
  PackedWeights packed_;
  /// Tensors of equal size that form one, one after the other.
  struct Joined {
    std::vector<TensorInfo> parts;
    std::vector<size_t> source_of;  ///< [part]
  };
  std::map<std::string, Joined> joined_;
  std::vector<size_t> source_of_;  ///< [tensor]
  std::map<std::string, size_t> by_name_;
};

}  // namespace dsj::weights
