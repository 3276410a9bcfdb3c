#include "engine/weights/formats/packed_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "common/check.h"

namespace dsj::weights {
namespace {

constexpr int64_t kScaled = 32;      ///< MXFP4: numbers that share a scale
constexpr int64_t kBlockBytes = 16;  ///< and the bytes of their codes
constexpr std::string_view kBlocks = "_blocks", kScales = "_scales", kInverse = "_scale_inv";
constexpr std::string_view kOfActivations[] = {".activation_scale", ".input_scale"};

constexpr std::array<float, 16> kE2m1 = {0,   0.5,  1,  1.5,  2,  3,  4,  6,
                                         -0., -0.5, -1, -1.5, -2, -3, -4, -6};

/// 2 to the power of byte - 127; infinity for 255, as in transformers.
float power_of(uint8_t byte) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (int code = 0; code < 256; ++code)
      values[static_cast<size_t>(code)] = std::ldexp(1.0f, code - 127);
    return values;
  }();
  return table[byte];
}

/// All numbers with 4 exponent bits (bias 7) and 3 fraction bits, without infinities.
const std::array<float, 256>& e4m3() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, fraction = code & 7;
      float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                  : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
      if (exponent == 15 && fraction == 7) value = NAN;
      values[static_cast<size_t>(code)] = code < 128 ? value : -value;
    }
    return values;
  }();
  return table;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return nlohmann::json(shape).dump();
}

std::unexpected<Error> misfit(const TensorPlace& codes, const TensorPlace& scales) {
  return bad_input("tensor \"" + scales.info.name + "\" " + shape_text(scales.info.shape) +
                       " does not have the scales of \"" + codes.info.name + "\" " +
                       shape_text(codes.info.shape),
                   codes.path);
}

bool ends_with_any(const std::string& name, std::span<const std::string_view> suffixes) {
  return std::ranges::any_of(suffixes, [&](auto suffix) { return name.ends_with(suffix); });
}

Status read_bytes(const TensorPlace& place, int64_t first, std::span<uint8_t> out) {
  return place.file->read(place.info.begin + first, std::as_writable_bytes(out));
}

/// Factors [first, first + out.size()) of a grid.
Status read_factors(const TensorPlace& place, int64_t first, std::span<float> out) {
  const DType dtype = place.info.dtype;
  const auto bytes = static_cast<size_t>(dtype_bytes(dtype));
  std::vector<uint8_t> raw(out.size() * bytes);
  DSJ_TRY_STATUS(read_bytes(place, first * static_cast<int64_t>(bytes), raw));
  if (bytes == 1) {
    std::ranges::transform(raw, out.begin(), power_of);
  } else if (bytes == 4) {
    std::memcpy(out.data(), raw.data(), raw.size());
  } else {
    std::vector<uint16_t> half(out.size());
    std::memcpy(half.data(), raw.data(), raw.size());
    (dtype == DType::BF16 ? bf16_to_float : fp16_to_float)(half, out);
  }
  return {};
}

/// Rounds to BF16's precision.
void round_to_bf16(std::span<float> values) {
  std::array<uint16_t, 1024> halves;
  while (!values.empty()) {
    const auto part = values.first(std::min(values.size(), halves.size()));
    const auto rounded = std::span(halves).first(part.size());
    float_to_bf16(part, rounded);
    bf16_to_float(rounded, part);
    values = values.subspan(part.size());
  }
}

}  // namespace

ScaleBlock scale_block_of(const std::string& config_json) {
  const auto config = nlohmann::json::parse(config_json, nullptr, /*allow_exceptions=*/false);
  for (const char* at : {"/quantization_config/weight_block_size",
                         "/text_config/quantization_config/weight_block_size"}) {
    const nlohmann::json::json_pointer pointer(at);
    if (!config.is_object() || !config.contains(pointer)) continue;
    const auto& size = config[pointer];
    if (size.is_array() && size.size() == 2 && size[0].is_number_unsigned() &&
        size[1].is_number_unsigned() && size[0] > 0 && size[1] > 0)
      return {size[0], size[1]};
  }
  return {128, 128};
}

struct PackedWeights::Expert {
  std::vector<uint8_t> codes, scales;
};

struct PackedWeights::Last {
  std::mutex mutex;
  const Tensor* tensor = nullptr;
  int64_t number = -1;
  std::shared_ptr<const Expert> expert;
};

Result<std::vector<TensorInfo>> PackedWeights::take(std::map<std::string, TensorPlace>& places,
                                                    ScaleBlock block) {
  const auto missing = [](const std::string& name, const TensorPlace& other) {
    return bad_input("holds \"" + other.info.name + "\" and not \"" + name + "\"", other.path,
                     "download or copy all files of the model");
  };
  std::vector<TensorInfo> unpacked;
  std::vector<std::string> gone;
  for (const auto& [name, place] : places) {
    if (name.ends_with(kBlocks) && place.info.dtype == DType::U8) {
      const std::string base = name.substr(0, name.size() - kBlocks.size());
      const auto scales = places.find(base + std::string(kScales));
      if (scales == places.end()) return missing(base + std::string(kScales), place);
      DSJ_TRY(auto info, add_mxfp4(base, place, scales->second));
      unpacked.push_back(std::move(info));
      gone.insert(gone.end(), {name, scales->first});
    } else if (name.ends_with(kInverse)) {
      const std::string base = name.substr(0, name.size() - kInverse.size());
      const auto codes = places.find(base);
      if (codes == places.end()) return missing(base, place);
      DSJ_TRY(auto info, add_fp8(base, codes->second, place, block));
      unpacked.push_back(std::move(info));
      gone.insert(gone.end(), {name, base});
    }
  }
  if (unpacked.empty()) return unpacked;
  for (const auto& [name, place] : places)
    if (ends_with_any(name, kOfActivations)) gone.push_back(name);
  for (const std::string& name : gone) places.erase(name);
  last_ = std::make_shared<Last>();
  return unpacked;
}

Result<TensorInfo> PackedWeights::add_mxfp4(const std::string& name, TensorPlace codes,
                                            TensorPlace scales) {
  const auto& shape = codes.info.shape;
  const bool fits = shape.size() == 4 && shape[3] == kBlockBytes &&
                    scales.info.dtype == DType::U8 &&
                    scales.info.shape == std::vector(shape.begin(), shape.end() - 1);
  if (!fits) return misfit(codes, scales);
  TensorInfo info{.name = name,
                  .dtype = DType::BF16,
                  .shape = {shape[0], shape[2] * kScaled, shape[1]},
                  .elements = 2 * codes.info.elements};
  tensors_.emplace(name, Tensor{.codes = std::move(codes),
                                .scales = std::move(scales),
                                .mxfp4 = true,
                                .rows = info.shape[2],
                                .columns = info.shape[1]});
  return info;
}

Result<TensorInfo> PackedWeights::add_fp8(const std::string& name, TensorPlace codes,
                                          TensorPlace scales, ScaleBlock block) {
  const DType of = scales.info.dtype;
  const bool known = is_weight_dtype(of) || of == DType::F8E8M0 || of == DType::U8;
  if (codes.info.dtype != DType::F8E4M3 || !known)
    return bad_input("tensor \"" + name + "\" is " + std::string(dtype_name(codes.info.dtype)) +
                         " with scales of " + std::string(dtype_name(of)) +
                         "; built are F8_E4M3 with F32, BF16, F16, F8_E8M0 or U8",
                     codes.path, "use the 16- or 32-bit model that it was made from");
  Tensor tensor{.codes = codes, .scales = scales};
  const auto& shape = codes.info.shape;
  const auto& grid = scales.info.shape;
  if (shape.size() < 2) return misfit(codes, scales);
  tensor.rows = shape[shape.size() - 2];
  tensor.columns = shape.back();
  if (scales.info.elements == 1) {
    tensor.block_rows = std::max<int64_t>(tensor.rows, 1);
    tensor.block_columns = std::max<int64_t>(tensor.columns, 1);
    if (codes.info.elements != tensor.rows * tensor.columns) return misfit(codes, scales);
  } else {
    const bool same =
        grid.size() == shape.size() && std::equal(grid.begin(), grid.end() - 2, shape.begin());
    if (!same) return misfit(codes, scales);
    tensor.scale_rows = grid[grid.size() - 2];
    tensor.scale_columns = grid.back();
    // Grids that do not match config.json's block divide the matrix evenly.
    const auto size_of = [](int64_t length, int64_t parts, int64_t usual) -> int64_t {
      if (parts == (length + usual - 1) / usual) return usual;
      return parts > 0 && length % parts == 0 ? length / parts : 0;
    };
    tensor.block_rows = size_of(tensor.rows, tensor.scale_rows, block.first);
    tensor.block_columns = size_of(tensor.columns, tensor.scale_columns, block.second);
    if (tensor.block_rows == 0 || tensor.block_columns == 0) return misfit(codes, scales);
  }
  TensorInfo info{
      .name = name, .dtype = DType::BF16, .shape = shape, .elements = codes.info.elements};
  tensors_.emplace(name, std::move(tensor));
  return info;
}

Result<std::shared_ptr<const PackedWeights::Expert>> PackedWeights::expert(const Tensor& tensor,
                                                                           int64_t number) const {
  const std::scoped_lock lock(last_->mutex);
  if (last_->tensor == &tensor && last_->number == number) return last_->expert;
  const int64_t codes = tensor.rows * tensor.columns / 2;
  const int64_t scales = tensor.rows * tensor.columns / kScaled;
  auto expert = std::make_shared<Expert>();
  expert->codes.resize(static_cast<size_t>(codes));
  expert->scales.resize(static_cast<size_t>(scales));
  DSJ_TRY_STATUS(read_bytes(tensor.codes, number * codes, expert->codes));
  DSJ_TRY_STATUS(read_bytes(tensor.scales, number * scales, expert->scales));
  last_->tensor = &tensor;
  last_->number = number;
  last_->expert = std::move(expert);
  return last_->expert;
}

Status PackedWeights::read_mxfp4(const Tensor& tensor, int64_t offset, std::span<float> out) const {
  const int64_t rows = tensor.rows, columns = tensor.columns, size = rows * columns;
  while (!out.empty()) {
    DSJ_TRY(const auto packed, expert(tensor, offset / size));
    int64_t column = offset % size / rows, row = offset % size % rows;
    const auto count = static_cast<size_t>(size - offset % size);
    const std::span<float> part = out.first(std::min(out.size(), count));
    for (float& value : part) {
      const int64_t at = row * columns + column;
      const uint8_t byte = packed->codes[static_cast<size_t>(at / 2)];
      value = kE2m1[at % 2 == 0 ? byte & 15 : byte >> 4] *
              power_of(packed->scales[static_cast<size_t>(at / kScaled)]);
      if (++row == rows) {
        row = 0;
        ++column;
      }
    }
    offset += static_cast<int64_t>(part.size());
    out = out.subspan(part.size());
  }
  return {};
}

Status PackedWeights::read_fp8(const Tensor& tensor, int64_t offset, std::span<float> out) {
  constexpr int64_t kAtOnce = 128 * 1024;
  std::vector<uint8_t> codes;
  std::vector<float> factors;
  const int64_t grid = tensor.scale_columns, per_matrix = tensor.rows * tensor.columns;
  while (!out.empty()) {
    // Rows of one matrix that share a row of factors.
    const int64_t matrix = offset / per_matrix, place = offset % per_matrix;
    const int64_t row = place / tensor.columns, band = row / tensor.block_rows;
    const int64_t end = std::min((band + 1) * tensor.block_rows, tensor.rows) * tensor.columns;
    const auto count =
        static_cast<size_t>(std::min({end - place, kAtOnce, static_cast<int64_t>(out.size())}));
    const std::span<float> part = out.first(count);
    codes.resize(count);
    factors.resize(static_cast<size_t>(grid));
    DSJ_TRY_STATUS(read_bytes(tensor.codes, offset, codes));
    DSJ_TRY_STATUS(
        read_factors(tensor.scales, (matrix * tensor.scale_rows + band) * grid, factors));
    int64_t column = place % tensor.columns;
    for (size_t i = 0; i < count; ++i) {
      part[i] = e4m3()[codes[i]] * factors[static_cast<size_t>(column / tensor.block_columns)];
      if (++column == tensor.columns) column = 0;
    }
    round_to_bf16(part);
    offset += static_cast<int64_t>(count);
    out = out.subspan(count);
  }
  return {};
}

Status PackedWeights::read(const std::string& name, int64_t offset, std::span<float> out) const {
  const Tensor& tensor = tensors_.at(name);
  return tensor.mxfp4 ? read_mxfp4(tensor, offset, out) : read_fp8(tensor, offset, out);
}

}  // namespace dsj::weights
