// The positions of tensors' elements in DeepSpeed's files. Pure. Internal to engine/deepspeed.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/weights/formats/safetensors.h"

namespace dsj::deepspeed {

inline constexpr char kDamagedHint[] =
    "the checkpoint is damaged: copy it again, or use an older one";

/// A parameter, in the order of the flat data.
struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int64_t elements = 0;
};

/// A run of elements in a file.
struct Stretch {
  int64_t begin = 0, elements = 0;  ///< in the flat vector or tensor
  int64_t byte = 0;                 ///< file offset of its first element
  weights::DType dtype = weights::DType::F32;
};

/// A file's part of a flat vector: ascending stretches, perhaps with gaps (unsaved padding).
using FlatVector = std::vector<Stretch>;

/// Appends a tensor to `flat` at element `begin`. Skips an empty one.
void append(FlatVector& flat, int64_t begin, const weights::TensorInfo& tensor);
/// The stretches of `flat` within its elements [at, at + count), cut to that range.
std::vector<Stretch> cut(const FlatVector& flat, int64_t at, int64_t count);

using StateOf = std::pair<std::string, std::string>;  ///< state, parameter

/// The key of a flat vector in a file: a state of a param group, or of a single parameter.
struct FlatOf {
  std::string state, parameter;
  size_t group = 0;
  auto operator<=>(const FlatOf&) const = default;
};
/// The content of a file.
using Contents = std::map<FlatOf, FlatVector>;

/// A tensor that is cut into equal shares for consecutive files. Element i is in file first +
/// (shift + i) / each, at base + (shift + i) % each of its vector `flat`. This needs no list of
/// files, for any number of ranks, and no file must be opened to locate an element.
struct Dealt {
  int64_t elements = 0;
  size_t first = 0;
  int64_t shift = 0, each = 0;  ///< each > 0, unless there are no elements
  FlatOf flat;
  int64_t base = 0;
};
/// A tensor that is whole in one file.
Dealt whole(int64_t elements, size_t file, FlatOf flat, int64_t at = 0);

/// One file's share of a tensor: elements [begin, begin + elements), at `at` of the vector.
struct Share {
  size_t file = 0;
  int64_t begin = 0, elements = 0, at = 0;
  bool operator==(const Share&) const = default;
};
/// The shares of elements [offset, offset + count), ascending. Precondition: these exist.
std::vector<Share> shares_of(const Dealt& dealt, int64_t offset, int64_t count);
/// nullopt if the file has no share.
std::optional<Share> share_in(const Dealt& dealt, size_t file);

}  // namespace dsj::deepspeed
