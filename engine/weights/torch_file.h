// What torch.save writes: a zip archive with one pickle and one file per storage. Only directory and pickle are read;
// the tensors then are ranges of the file. Called by weight_source.h (pytorch_model.bin) and engine/deepspeed.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/pickle.h"
#include "engine/weights/safetensors.h"
#include "engine/weights/zip_directory.h"

namespace dsj::weights {

/// The directory and the pickle of one file.
class TorchArchive {
 public:
  /// Error, with the reason: the format before PyTorch 1.6 (no zip), a big-endian file, and what zip_directory.h
  /// refuses.
  static Result<TorchArchive> open(const ReadFile& file, const std::string& path);

  /// The bytes of its pickle.
  std::string_view pickle() const { return pickle_; }
  /// By name; all lie in the file.
  const std::map<std::string, ZipEntry>& entries() const { return entries_; }
  /// Where a tensor of the pickle lies in the file. Error: it is not contiguous or reaches beyond its storage; its
  /// storage is not there, or has another size than the pickle says.
  Result<TensorInfo> place(const PickledTensor& tensor) const;

 private:
  std::string path_, folder_, pickle_;
  std::map<std::string, ZipEntry> entries_;
};

/// A state dict: its tensors in the pickle's order; several may share a storage. Error: as above, and what
/// state_dict_pickle.h refuses.
Result<std::vector<TensorInfo>> read_torch_file(const ReadFile& file, const std::string& path);

}  // namespace dsj::weights
