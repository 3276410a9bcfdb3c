// Packed weights of published files, with codes of few bits in one tensor and their scales in
// another: MXFP4 (gpt-oss) and 8-bit floats in blocks (DeepSeek-V3, Qwen3-FP8, Ministral 3). They
// are read as the BF16 tensors that transformers makes with dequantize=True, bit for bit.
//
// MXFP4: X_blocks U8 [E, R, G, 16] and X_scales U8 [E, R, G] are X [E, 32 G, R]. A byte has two
// codes (E2M1), the first in its low bits; 32 codes along the last two dimensions share a scale, 2
// to the power of its byte - 127.
//
// fp8: X F8_E4M3 [..., R, C] and X_scale_inv [..., ceil(R / a), ceil(C / b)] are X; each block of
// a x b numbers has one factor. A single factor is for all. E8M0 and U8 factors are exponents.
// Tested by: tests/engine/weights/packed_weights_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/formats/safetensors.h"

namespace dsj::weights {

/// A tensor, and the file that contains it.
struct TensorPlace {
  TensorInfo info;
  const ReadFile* file = nullptr;
  std::string path;  ///< for messages
};

/// a and b of a fp8 model: quantization_config.weight_block_size.
using ScaleBlock = std::pair<int64_t, int64_t>;
/// As in config.json; 128 x 128 if it does not say, or is not such JSON.
ScaleBlock scale_block_of(const std::string& config_json);

class PackedWeights {
 public:
  /// Removes the parts of packed tensors from `places`, by name, and returns the unpacked tensors.
  /// Drops scales of activations. Errors: one part is missing, or shapes do not match.
  Result<std::vector<TensorInfo>> take(std::map<std::string, TensorPlace>& places,
                                       ScaleBlock block);
  bool has(const std::string& name) const { return tensors_.contains(name); }
  /// The name of the tensor with its codes.
  const std::string& codes(const std::string& name) const {
    return tensors_.at(name).codes.info.name;
  }
  /// Elements from `offset` on, as WeightSource::read. Thread-safe. For MXFP4 it reads whole
  /// experts and caches the last one.
  Status read(const std::string& name, int64_t offset, std::span<float> out) const;

 private:
  struct Tensor {
    TensorPlace codes, scales;
    bool mxfp4 = false;
    int64_t rows = 0, columns = 0;  ///< of a matrix: an expert's codes, or the last two dimensions
    int64_t block_rows = 1, block_columns = 1;  ///< fp8
    int64_t scale_rows = 1, scale_columns = 1;  ///< fp8: of the grid of factors
  };
  struct Expert;
  struct Last;
  Result<TensorInfo> add_mxfp4(const std::string& name, TensorPlace codes, TensorPlace scales);
  Result<TensorInfo> add_fp8(const std::string& name, TensorPlace codes, TensorPlace scales,
                             ScaleBlock block);
  Result<std::shared_ptr<const Expert>> expert(const Tensor& tensor, int64_t number) const;
  Status read_mxfp4(const Tensor& tensor, int64_t offset, std::span<float> out) const;
  static Status read_fp8(const Tensor& tensor, int64_t offset, std::span<float> out);

  std::map<std::string, Tensor> tensors_;
  std::shared_ptr<Last> last_;
};

}  // namespace dsj::weights
