// The pickle in a torch.save archive, read as data: a machine for the opcodes that torch.save
// writes for a state dict. It never calls a name. It knows the names that a state dict needs and
// refuses any other by name. A pure function of bytes (fuzzed).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/weights/dtype.h"

namespace dsj::weights {

/// One tensor of the state dict: a view of a storage in the archive.
struct PickledTensor {
  std::string name;
  DType dtype = DType::F32;
  std::string storage;           ///< name of its file below data/
  int64_t storage_elements = 0;  ///< as the pickle says
  int64_t offset = 0;            ///< elements from the storage's start
  std::vector<int64_t> shape, strides;
};

inline constexpr int64_t kPickleBytesMax = 64 << 20;

/// Reads protocols 2 and 3. The top must be a dict of tensors. Error, with the opcode's byte or the
/// name: anything but dicts, tuples, numbers, texts, torch._utils._rebuild_tensor_v2,
/// collections.OrderedDict and torch's typed storages.
Result<std::vector<PickledTensor>> read_state_dict_pickle(std::string_view bytes,
                                                          const std::string& path);

}  // namespace dsj::weights
