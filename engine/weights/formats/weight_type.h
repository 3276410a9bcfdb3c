// The check of the types that are read as weights, with the error's text.
// Tested by: tests/engine/weights/weight_source_test.cc, tests/engine/weights/tensor_check_test.cc
#pragma once

#include <string>

#include "common/result.h"
#include "engine/weights/formats/safetensors.h"

namespace dsj::weights {

/// BadInput: the type is not a weight's (F64, integers, 8-bit floats). `path`: the tensor's file.
inline Status check_weight_type(const TensorInfo& tensor, const std::string& path) {
  if (is_weight_dtype(tensor.dtype)) return {};
  return bad_input("tensor \"" + tensor.name + "\" is " + std::string(dtype_name(tensor.dtype)) +
                       ", weights are F32, BF16 or F16",
                   path, "convert the model first; quantised weights are not trained here");
}

}  // namespace dsj::weights
