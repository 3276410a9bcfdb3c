// Reads files of torch.save: a zip archive with one pickle and one file per storage. Only directory
// and pickle are read; tensors are ranges of the file. Called by weight_source.h
// (pytorch_model.bin) and engine/deepspeed.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/formats/pickle.h"
#include "engine/weights/formats/safetensors.h"
#include "engine/weights/formats/zip_directory.h"

namespace dsj::weights {

/// The directory and the pickle of one file.
class TorchArchive {
 public:
  /// Errors: the format before PyTorch 1.6 (not a zip), a big-endian file, and those of
  /// zip_directory.h.
  static Result<TorchArchive> open(const ReadFile& file, const std::string& path);

  /// The bytes of its pickle.
  std::string_view pickle() const { return pickle_; }
  /// By name; all are within the file.
  const std::map<std::string, ZipEntry>& entries() const { return entries_; }
  /// The position of a pickle's tensor in the file. Errors: it is not contiguous or exceeds its
  /// storage; the storage is missing or its size differs from the pickle's.
  Result<TensorInfo> place(const PickledTensor& tensor) const;

 private:
  std::string path_, folder_, pickle_;
  std::map<std::string, ZipEntry> entries_;
};

/// The tensors of a state dict in the pickle's order; several may share a storage. Errors: as
/// above, and those of state_dict_pickle.h.
Result<std::vector<TensorInfo>> read_torch_file(const ReadFile& file, const std::string& path);

}  // namespace dsj::weights
