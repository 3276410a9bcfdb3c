// Parses the header of a safetensors file, strictly, because the file is not trusted. A pure
// function of bytes (fuzzed); weight_source.h reads the tensors.
//
// Format: 8 bytes little-endian N, N bytes of JSON, then the tensors' bytes. The JSON maps a name
// to {"dtype", "shape", "data_offsets": [begin, end)}; "__metadata__" maps strings to strings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/weights/formats/dtype.h"

namespace dsj::weights {

/// One tensor of a file or of a model.
struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;  ///< empty for a scalar
  int64_t elements = 1;        ///< product of shape
  int64_t begin = 0;           ///< first byte, from the start of the file
  int64_t bytes() const { return elements * dtype_bytes(dtype); }
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  ///< in file order; cover the file without gap or overlap
  std::map<std::string, std::string> metadata;
};

/// The limit of the format's own library.
inline constexpr int64_t kHeaderBytesMax = 100'000'000;
inline constexpr int64_t kHeaderPrefixBytes = 8;

/// The JSON's length, from the first 8 bytes. Error: longer than the file or than kHeaderBytesMax.
Result<int64_t> safetensors_header_bytes(std::string_view prefix, int64_t file_bytes,
                                         const std::string& path);

/// Errors, with `path` and the tensor's name: JSON of another shape, a repeated name, an unknown
/// dtype, a shape whose product overflows, offsets that do not match shape and dtype, that overlap,
/// leave a gap, or exceed `file_bytes` (an interrupted download).
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t file_bytes,
                                                   const std::string& path);

}  // namespace dsj::weights
