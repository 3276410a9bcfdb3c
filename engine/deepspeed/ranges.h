// Where the elements of every tensor lie in DeepSpeed's files. Numbers only, no files. Internal to engine/deepspeed.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/weights/safetensors.h"

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
  int64_t begin = 0, elements = 0;  ///< from the start of what it is a stretch of
  int64_t byte = 0;                 ///< of its first element, in the file
  weights::DType dtype = weights::DType::F32;
};

/// What a file has of a flat vector: stretches, ascending, perhaps with gaps (padding that was cut off).
using FlatVector = std::vector<Stretch>;

/// Appends a tensor to `flat` from element `begin` on. One without elements is left out.
void append(FlatVector& flat, int64_t begin, const weights::TensorInfo& tensor);
/// What of `flat` lies in its elements [at, at + count): stretches, cut to the range.
std::vector<Stretch> cut(const FlatVector& flat, int64_t at, int64_t count);

using StateOf = std::pair<std::string, std::string>;  ///< state, parameter

/// A flat vector of a file: a state of a param group, or of one parameter where it lies by itself.
struct FlatOf {
  std::string state, parameter;
  size_t group = 0;
  auto operator<=>(const FlatOf&) const = default;
};
/// All that a file holds.
using Contents = std::map<FlatOf, FlatVector>;

/// A tensor that is dealt to consecutive files in equal shares. Element i lies in file first + (shift + i) / each, at
/// base + (shift + i) % each of its vector `flat`. No list has an entry per file, so that any number of ranks may have
/// written the files, and none has to be opened to know where an element lies.
struct Dealt {
  int64_t elements = 0;
  size_t first = 0;
  int64_t shift = 0, each = 0;  ///< each > 0, unless there are no elements
  FlatOf flat;
  int64_t base = 0;
};
/// A tensor that lies whole in one file.
Dealt whole(int64_t elements, size_t file, FlatOf flat, int64_t at = 0);

/// What one file has of a tensor: elements [begin, begin + elements) of it, from element `at` of the file's vector on.
struct Share {
  size_t file = 0;
  int64_t begin = 0, elements = 0, at = 0;
  bool operator==(const Share&) const = default;
};
/// What holds elements [offset, offset + count), ascending. Precondition: the range lies in the tensor.
std::vector<Share> shares_of(const Dealt& dealt, int64_t offset, int64_t count);
/// nullopt: the file has none of it.
std::optional<Share> share_in(const Dealt& dealt, size_t file);

}  // namespace dsj::deepspeed
