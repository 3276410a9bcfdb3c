// Reads a pickle that is a state dict: a dict of tensors. A pure function of bytes (fuzzed).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/weights/formats/pickle.h"

namespace dsj::weights {

/// Reads protocols 2 and 3. The top must be a dict of tensors. Error, with the opcode's byte or the
/// name: anything but dicts, tuples, numbers, texts, torch._utils._rebuild_tensor_v2,
/// collections.OrderedDict and torch's typed storages.
Result<std::vector<PickledTensor>> read_state_dict_pickle(std::string_view bytes,
                                                          const std::string& path);

}  // namespace dsj::weights
