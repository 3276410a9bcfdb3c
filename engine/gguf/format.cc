#include "engine/gguf/format.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/check.h"
#include "engine/weights/formats/dtype.h"

namespace dsj::gguf {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;

/// GGUF's value types, with their numbers.
enum class ValueType : uint32_t { U32 = 4, I32 = 5, F32 = 6, Bool = 7, Text = 8, Array = 9 };

template <typename T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

/// Writes a value without its type, and returns the type.
struct PutValue {
  std::string& out;

  static ValueType type(uint32_t) { return ValueType::U32; }
  static ValueType type(int32_t) { return ValueType::I32; }
  static ValueType type(float) { return ValueType::F32; }
  static ValueType type(bool) { return ValueType::Bool; }
  static ValueType type(const std::string&) { return ValueType::Text; }
  template <typename T>
  static ValueType type(const std::vector<T>&) {
    return ValueType::Array;
  }

  void write(uint32_t value) { put(out, value); }
  void write(int32_t value) { put(out, value); }
  void write(float value) { put(out, value); }
  void write(bool value) { put<uint8_t>(out, value ? 1 : 0); }
  void write(const std::string& value) { put_text(out, value); }
  template <typename T>
  void write(const std::vector<T>& values) {
    put(out, static_cast<uint32_t>(type(T{})));
    put<uint64_t>(out, values.size());
    for (const auto& value : values) write(static_cast<const T&>(value));
  }

  template <typename T>
  void operator()(const T& value) {
    put(out, static_cast<uint32_t>(type(value)));
    write(value);
  }
};

void put_q8_0(std::span<const float> values, std::string& out) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const float scale = largest / 127;
  const float inverse = scale != 0 ? 1 / scale : 0;
  uint16_t half = 0;
  weights::float_to_fp16(std::span(&scale, 1), std::span(&half, 1));
  put(out, half);
  for (const float value : values) put(out, static_cast<int8_t>(std::round(value * inverse)));
}

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::string_view type_name(Type type) {
  switch (type) {
    case Type::F32:
      return "F32";
    case Type::F16:
      return "F16";
    case Type::Q8_0:
      return "Q8_0";
    case Type::BF16:
      return "BF16";
  }
  DSJ_CHECK(false);
}

int64_t bytes_of(Type type, int64_t elements) {
  if (type == Type::Q8_0) {
    DSJ_CHECK(elements % kBlock == 0);
    return elements / kBlock * (kBlock + 2);
  }
  return elements * (type == Type::F32 ? 4 : 2);
}

void encode(Type type, std::span<const float> values, std::string& out) {
  if (type == Type::Q8_0) {
    DSJ_CHECK(values.size() % kBlock == 0);
    for (size_t i = 0; i < values.size(); i += kBlock) put_q8_0(values.subspan(i, kBlock), out);
    return;
  }
  if (type == Type::F32) {
    out.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    return;
  }
  std::vector<uint16_t> halves(values.size());
  (type == Type::F16 ? weights::float_to_fp16 : weights::float_to_bf16)(values, halves);
  out.append(reinterpret_cast<const char*>(halves.data()), halves.size() * 2);
}

void Keys::set(const std::string& key, Value value) {
  const auto found = std::ranges::find(list_, key, &std::pair<std::string, Value>::first);
  if (found == list_.end())
    list_.emplace_back(key, std::move(value));
  else
    found->second = std::move(value);
}

const Value* Keys::find(const std::string& key) const {
  const auto found = std::ranges::find(list_, key, &std::pair<std::string, Value>::first);
  return found == list_.end() ? nullptr : &found->second;
}

int64_t TensorEntry::elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

Result<Writer> Writer::begin(Files& files, const std::string& path, const Keys& keys,
                             std::vector<TensorEntry> tensors) {
  Writer writer;
  writer.files_ = &files;
  writer.path_ = path;
  writer.temporary_ = path + ".tmp";
  writer.tensors_ = std::move(tensors);
  std::string head(kMagic);
  put(head, kVersion);
  put<uint64_t>(head, writer.tensors_.size());
  put<uint64_t>(head, keys.list().size());
  for (const auto& [key, value] : keys.list()) {
    put_text(head, key);
    std::visit(PutValue{head}, value);
  }
  int64_t offset = 0;
  for (const TensorEntry& tensor : writer.tensors_) {
    put_text(head, tensor.name);
    put(head, static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      put<uint64_t>(head, static_cast<uint64_t>(*size));
    put(head, static_cast<uint32_t>(tensor.type));
    put<uint64_t>(head, static_cast<uint64_t>(offset));
    offset = aligned(offset + bytes_of(tensor.type, tensor.elements()));
  }
  DSJ_TRY(writer.file_, files.create_write(writer.temporary_));
  DSJ_TRY_STATUS(writer.file_->append(as_bytes(head)));
  writer.bytes_ = static_cast<int64_t>(head.size());
  DSJ_TRY_STATUS(writer.pad());
  return writer;
}

Writer::~Writer() {
  if (!file_) return;
  file_.reset();
  (void)files_->remove(temporary_);
}

Status Writer::pad() {
  const std::string zeros(static_cast<size_t>(aligned(bytes_) - bytes_), '\0');
  bytes_ += static_cast<int64_t>(zeros.size());
  return file_->append(as_bytes(zeros));
}

Status Writer::append(std::span<const float> values) {
  DSJ_CHECK(tensor_ < tensors_.size());
  const TensorEntry& tensor = tensors_[tensor_];
  elements_ += static_cast<int64_t>(values.size());
  DSJ_CHECK(elements_ <= tensor.elements());
  buffer_.clear();
  encode(tensor.type, values, buffer_);
  bytes_ += static_cast<int64_t>(buffer_.size());
  DSJ_TRY_STATUS(file_->append(as_bytes(buffer_)));
  if (elements_ < tensor.elements()) return {};
  ++tensor_;
  elements_ = 0;
  return pad();
}

Result<int64_t> Writer::finish() {
  DSJ_CHECK(tensor_ == tensors_.size());
  DSJ_TRY_STATUS(file_->sync());
  DSJ_TRY_STATUS(file_->close());
  DSJ_TRY_STATUS(files_->rename(temporary_, path_));
  file_.reset();
  DSJ_TRY_STATUS(files_->sync_dir(path_parent(path_)));
  return bytes_;
}

}  // namespace dsj::gguf
