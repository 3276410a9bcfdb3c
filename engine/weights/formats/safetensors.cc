#include "engine/weights/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

namespace dsj::weights {
namespace {

constexpr char kFormatHint[] = "the file is damaged or is not safetensors";

struct RawTensor {
  std::string name, dtype;
  std::vector<uint64_t> shape, offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
};

/// Reads the JSON as a stream of events and builds only what the format contains, so that a hostile
/// header needs no more memory than its size.
class HeaderReader {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  bool null() { return refuse("null is not allowed here"); }
  bool boolean(bool) { return refuse("a boolean is not allowed here"); }
  bool number_integer(number_integer_t) { return refuse("a negative number is not allowed here"); }
  bool number_float(number_float_t, const string_t&) {
    return refuse("a fractional or too large number is not allowed here");
  }
  bool binary(binary_t&) { return refuse("binary data is not allowed here"); }

  bool number_unsigned(number_unsigned_t value) {
    if (place_ != Place::Array) return refuse("a number is not allowed here");
    if (array_->size() >= kDimensionsMax) return refuse("an array of more than 16 numbers");
    array_->push_back(value);
    return true;
  }
  bool string(string_t& value) {
    if (place_ == Place::Metadata) {
      metadata[metadata_key_] = value;
      return true;
    }
    if (place_ == Place::Tensor && field_ == "dtype") {
      tensors.back().dtype = value;
      return true;
    }
    return refuse("a string is not allowed here");
  }
  bool start_object(std::size_t) {
    if (place_ == Place::Start) return enter(Place::Top);
    if (place_ == Place::Top && in_metadata_) return enter(Place::Metadata);
    if (place_ == Place::Top) return enter(Place::Tensor);
    return refuse("an object is not allowed here");
  }
  bool key(string_t& name) {
    if (place_ == Place::Top) {
      if (!names_.insert(name).second) return refuse("\"" + name + "\" is listed twice");
      in_metadata_ = name == "__metadata__";
      if (!in_metadata_) tensors.push_back({.name = name});
      return true;
    }
    if (place_ == Place::Metadata) {
      metadata_key_ = name;
      return metadata.contains(name) ? refuse("metadata \"" + name + "\" is listed twice") : true;
    }
    RawTensor& tensor = tensors.back();
    bool* seen = name == "dtype"          ? &tensor.has_dtype
                 : name == "shape"        ? &tensor.has_shape
                 : name == "data_offsets" ? &tensor.has_offsets
                                          : nullptr;
    if (!seen) return refuse("unknown field \"" + name + "\"");
    if (*seen) return refuse("\"" + name + "\" is listed twice");
    *seen = true;
    field_ = name;
    return true;
  }
  bool end_object() {
    if (place_ == Place::Tensor) {
      const RawTensor& tensor = tensors.back();
      if (!tensor.has_dtype || !tensor.has_shape || !tensor.has_offsets) {
        return refuse("dtype, shape and data_offsets are expected");
      }
    }
    return enter(place_ == Place::Top ? Place::End : Place::Top);
  }
  bool start_array(std::size_t) {
    if (place_ != Place::Tensor || field_ == "dtype") return refuse("an array is not allowed here");
    array_ = field_ == "shape" ? &tensors.back().shape : &tensors.back().offsets;
    return enter(Place::Array);
  }
  bool end_array() { return enter(Place::Tensor); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) {
    return refuse("no JSON at byte " + std::to_string(position));
  }

  std::vector<RawTensor> tensors;
  std::map<std::string, std::string> metadata;
  std::string problem;

 private:
  enum class Place { Start, Top, Metadata, Tensor, Array, End };
  bool enter(Place place) {
    place_ = place;
    return true;
  }
  bool refuse(std::string what) {
    problem = std::move(what);
    if (place_ == Place::Tensor || place_ == Place::Array) {
      problem = "tensor \"" + tensors.back().name + "\": " + problem;
    }
    return false;
  }

  Place place_ = Place::Start;
  bool in_metadata_ = false;
  std::string field_, metadata_key_;
  std::vector<uint64_t>* array_ = nullptr;
  std::set<std::string> names_;
};

Result<TensorInfo> checked_tensor(const RawTensor& raw, int64_t data_begin, int64_t data_bytes,
                                  const std::string& path) {
  const std::string what = "tensor \"" + raw.name + "\": ";
  const auto dtype = dtype_from_name(raw.dtype);
  if (!dtype) {
    return bad_input(what + "dtype \"" + raw.dtype + "\" is not known here", path,
                     "quantised weights must be converted to F32, BF16 or F16 first");
  }
  TensorInfo tensor{.name = raw.name, .dtype = *dtype};
  for (const uint64_t extent : raw.shape) {
    if (extent > uint64_t(INT64_MAX) ||
        __builtin_mul_overflow(tensor.elements, int64_t(extent), &tensor.elements)) {
      return bad_input(what + "the product of its shape is too large", path, kFormatHint);
    }
    tensor.shape.push_back(int64_t(extent));
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(tensor.elements, dtype_bytes(*dtype), &bytes)) {
    return bad_input(what + "the product of its shape is too large", path, kFormatHint);
  }
  if (raw.offsets.size() != 2 || raw.offsets[0] > raw.offsets[1] ||
      raw.offsets[1] > uint64_t(INT64_MAX)) {
    return bad_input(what + "data_offsets must be [begin, end]", path, kFormatHint);
  }
  const int64_t end = int64_t(raw.offsets[1]);
  if (end > data_bytes) {
    return bad_input(what + "its bytes end at " + std::to_string(end) +
                         " of the data, the file has " + std::to_string(data_bytes),
                     path, "the file is cut off: download or copy it again");
  }
  if (end - int64_t(raw.offsets[0]) != bytes) {
    return bad_input(what + std::to_string(end - int64_t(raw.offsets[0])) +
                         " bytes are announced, its shape and dtype take " + std::to_string(bytes),
                     path, kFormatHint);
  }
  tensor.begin = data_begin + int64_t(raw.offsets[0]);
  return tensor;
}

}  // namespace

Result<int64_t> safetensors_header_bytes(std::string_view prefix, int64_t file_bytes,
                                         const std::string& path) {
  if (prefix.size() < size_t(kHeaderPrefixBytes) || file_bytes < kHeaderPrefixBytes) {
    return bad_input(
        "the file has " + std::to_string(file_bytes) + " bytes: too short for a header", path,
        kFormatHint);
  }
  uint64_t bytes;
  std::memcpy(&bytes, prefix.data(), sizeof bytes);
  if (bytes > uint64_t(kHeaderBytesMax)) {
    return bad_input("a header of " + std::to_string(bytes) + " bytes is announced, at most " +
                         std::to_string(kHeaderBytesMax) + " are read",
                     path, kFormatHint);
  }
  if (int64_t(bytes) > file_bytes - kHeaderPrefixBytes) {
    return bad_input("a header of " + std::to_string(bytes) + " bytes is announced, the file has " +
                         std::to_string(file_bytes) + " bytes in all",
                     path, "the file is cut off: download or copy it again");
  }
  return int64_t(bytes);
}

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, int64_t file_bytes,
                                                   const std::string& path) {
  HeaderReader reader;
  if (json.empty() || json.front() != '{' ||
      !nlohmann::json::sax_parse(json.begin(), json.end(), &reader)) {
    const std::string problem = reader.problem.empty() ? "no JSON object" : reader.problem;
    return bad_input("header: " + problem, path, kFormatHint);
  }
  const int64_t data_begin = kHeaderPrefixBytes + int64_t(json.size());
  SafetensorsHeader header{.metadata = std::move(reader.metadata)};
  header.tensors.reserve(reader.tensors.size());
  for (const RawTensor& raw : reader.tensors) {
    DSJ_TRY(auto tensor, checked_tensor(raw, data_begin, file_bytes - data_begin, path));
    header.tensors.push_back(std::move(tensor));
  }
  // An empty tensor precedes a tensor with the same begin.
  std::ranges::sort(header.tensors, [](const TensorInfo& a, const TensorInfo& b) {
    return std::tuple(a.begin, a.bytes(), std::string_view(a.name)) <
           std::tuple(b.begin, b.bytes(), std::string_view(b.name));
  });
  int64_t position = data_begin;
  for (const TensorInfo& tensor : header.tensors) {
    if (tensor.begin != position) {
      return bad_input("tensor \"" + tensor.name + "\" begins at byte " +
                           std::to_string(tensor.begin) + ", the one before ends at " +
                           std::to_string(position),
                       path, kFormatHint);
    }
    position += tensor.bytes();
  }
  if (position != file_bytes) {
    return bad_input("the tensors end at byte " + std::to_string(position) + ", the file at " +
                         std::to_string(file_bytes),
                     path, kFormatHint);
  }
  return header;
}

}  // namespace dsj::weights
