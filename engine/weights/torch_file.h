// pytorch_model.bin: what torch.save writes for a state dict, a zip archive with one pickle and one
// file per storage. Only directory and pickle are read; the tensors then are ranges of the file.
// Internal to engine/weights.
#pragma once

#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/safetensors.h"

namespace dsj::weights {

/// Tensors in the pickle's order; several may share a storage. Error, with the reason: the format
/// before PyTorch 1.6 (no zip), a big-endian file, a tensor that is not contiguous or reaches
/// beyond its storage, a storage of another size than the pickle says, and what zip_directory.h and
/// state_dict_pickle.h refuse.
Result<std::vector<TensorInfo>> read_torch_file(const ReadFile& file, const std::string& path);

}  // namespace dsj::weights
