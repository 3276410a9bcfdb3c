// The header of a safetensors file: parsed strictly, because the file comes from anywhere. A pure
// function of bytes (it is fuzzed); reading tensors is weight_source.h's.
//
// Format: 8 bytes little-endian N, N bytes of JSON, then the tensors' bytes. The JSON maps a name
// to
// {"dtype", "shape", "data_offsets": [begin, end)}, plus "__metadata__", strings to strings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/weights/dtype.h"

namespace dsj::weights {

/// One tensor of a file or of a model.
struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;  ///< empty: a scalar
  int64_t elements = 1;        ///< product of shape
  int64_t begin = 0;           ///< first byte, from the start of the file
  int64_t bytes() const { return elements * dtype_bytes(dtype); }
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  ///< in file order; no gap, no overlap, to the file's last byte
  std::map<std::string, std::string> metadata;
};

/// As in the format's own library.
inline constexpr int64_t kHeaderBytesMax = 100'000'000;
inline constexpr int64_t kHeaderPrefixBytes = 8;

/// Length of the JSON, from the first 8 bytes. Error: longer than the file or than kHeaderBytesMax.
Result<int64_t> safetensors_header_bytes(std::string_view prefix, int64_t file_bytes,
                                         const std::string& path);

/// Refuses, with `path` and the tensor's name: JSON that is not exactly this shape, a name twice,
/// an unknown dtype, a shape whose product overflows, offsets that do not match shape and dtype,
/// that overlap, leave a gap, or go past `file_bytes` (a download that stopped).
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t file_bytes,
                                                   const std::string& path);

}  // namespace dsj::weights
