// A GGUF file, version 3, as llama.cpp reads it: keys with values, then what tensors there are, then
// their bytes. Little-endian. Source of the layout: ggml's description of GGUF.
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

/// ggml's types of elements that are written here, by their numbers.
enum class Type : uint32_t { F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };

inline constexpr int64_t kBlock = 32;      ///< elements of a block of Q8_0
inline constexpr int64_t kAlignment = 32;  ///< bytes: where a tensor may begin

/// "F32", "Q8_0" ...
std::string_view type_name(Type type);
/// Bytes of `elements`, a multiple of kBlock for Q8_0.
int64_t bytes_of(Type type, int64_t elements);
/// Appends the elements as they are in the file. F16 and BF16: to nearest, ties to even. Q8_0, of each
/// block: a scale of 16 bits, the largest magnitude / 127, then each element / that scale (before it is
/// rounded), rounded half away from zero: ggml's quantize_row_q8_0_ref.
void encode(Type type, std::span<const float> values, std::string& out);

using Value = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                           std::vector<float>, std::vector<int32_t>, std::vector<bool>>;

/// Keys in the order of the file; a key is there once.
class Keys {
 public:
  /// Replaces the value that the key has.
  void set(const std::string& key, Value value);
  /// nullptr: it has none.
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

/// Writes a file front to back, one tensor after the other. Nothing has the file's name before
/// finish(), and an unfinished file is removed.
class Writer {
 public:
  /// Writes the keys and what tensors there will be. `files` must outlive the writer.
  static Result<Writer> begin(Files& files, const std::string& path, const Keys& keys,
                              std::vector<TensorEntry> tensors);
  Writer(Writer&&) = default;
  Writer& operator=(Writer&&) = delete;
  ~Writer();

  /// The next elements of the tensors, in their order. One call's are of one tensor; of Q8_0 whole
  /// blocks (DSJ_CHECK).
  Status append(std::span<const float> values);
  /// All elements must be there (DSJ_CHECK). Makes the file durable under its name; returns its size.
  Result<int64_t> finish();

 private:
  Writer() = default;
  Status pad();

  Files* files_ = nullptr;
  std::string path_, temporary_;
  std::unique_ptr<WriteFile> file_;
  std::vector<TensorEntry> tensors_;
  size_t tensor_ = 0;     ///< that the next element is of
  int64_t elements_ = 0;  ///< of it that are written
  int64_t bytes_ = 0;     ///< of the file
  std::string buffer_;
};

}  // namespace dsj::gguf
