// Writes a GGUF file, version 3, as llama.cpp reads it: keys with values, then the list of tensors,
// then their bytes. Little-endian. Source of the layout: ggml's description of GGUF.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::gguf {

/// ggml's element types that are written here, with their numbers.
enum class Type : uint32_t { F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };

inline constexpr int64_t kBlock = 32;      ///< elements per block of Q8_0
inline constexpr int64_t kAlignment = 32;  ///< of tensors, in bytes

/// "F32", "Q8_0" ...
std::string_view type_name(Type type);
/// The size of `elements` in bytes; a multiple of kBlock for Q8_0.
int64_t bytes_of(Type type, int64_t elements);
/// Appends the encoded elements. F16 and BF16: to nearest, ties to even. Q8_0, per block: a 16-bit
/// scale, the largest magnitude / 127, then each element / that scale (before its rounding),
/// rounded half away from zero: ggml's quantize_row_q8_0_ref.
void encode(Type type, std::span<const float> values, std::string& out);

using Value = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                           std::vector<float>, std::vector<int32_t>, std::vector<bool>>;

/// Keys in file order, without duplicates.
class Keys {
 public:
  /// Sets or replaces the key's value.
  void set(const std::string& key, Value value);
  /// nullptr if the key is not set.
  const Value* find(const std::string& key) const;
  const std::vector<std::pair<std::string, Value>>& list() const { return list_; }

 private:
  std::vector<std::pair<std::string, Value>> list_;
};

struct TensorEntry {
  std::string name;
  std::vector<int64_t> shape;  ///< row-major, as in safetensors; the file has it reversed
  Type type = Type::F32;
  int64_t elements() const;
};

/// Writes a file sequentially, tensor by tensor. finish() gives it its name; an unfinished file is
/// removed.
class Writer {
 public:
  /// Writes the keys and the list of tensors. `files` must outlive the writer.
  static Result<Writer> begin(Files& files, const std::string& path, const Keys& keys,
                              std::vector<TensorEntry> tensors);
  Writer(Writer&&) = default;
  Writer& operator=(Writer&&) = delete;
  ~Writer();

  /// Appends the next elements of the tensors, in order. One call must be within one tensor; for
  /// Q8_0 whole blocks (DSJ_CHECK).
  Status append(std::span<const float> values);
  /// All elements must be complete (DSJ_CHECK). Makes the file durable and returns its size.
  Result<int64_t> finish();

 private:
  Writer() = default;
  Status pad();

  Files* files_ = nullptr;
  std::string path_, temporary_;
  std::unique_ptr<WriteFile> file_;
  std::vector<TensorEntry> tensors_;
  size_t tensor_ = 0;     ///< the current tensor
  int64_t elements_ = 0;  ///< its elements written so far
  int64_t bytes_ = 0;     ///< bytes written so far
  std::string buffer_;
};

}  // namespace dsj::gguf
